//! Programs that try to turn an injection against the tool: none makes root write into a file of its choice,
//! and none makes another program take the helper.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use speed_bump_linux::process::{Process, ProcessError};
use speed_bump_session::inject::InjectError;
use speed_bump_testing::{Fixture, fixture::copy_program, skip, tool, wait::wait_for};
use speed_bump_tests::processes::{self, Running, is_root};

use crate::support;

/// How often each program gets its chance.
const TRIES: usize = 40;

fn compile(source: &str) -> Fixture {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("injection/hostile_injection");
    let program = Fixture::compile(&folder.join(source), &["-O1", "-pthread"]).unwrap();
    fs::set_permissions(program.program(), fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Injects into one process after another that puts `victim` in place of the helper's memory file. Returns
/// how often that was detected.
fn inject_while_swapped(by: &str, victim: &Path) -> usize {
    let program = compile("swaps.c");
    let mut found_out = 0;
    for _ in 0..TRIES {
        let running = Running::start_and_wait(Command::new(program.program()).arg(by).arg(victim));
        let process = Process::open(running.pid()).unwrap();
        match support::inject_here(&process) {
            Ok(injected) => support::leave(&process, &injected),
            Err(InjectError::NotOurs { descriptor, .. }) => {
                assert!(descriptor < 64, "{descriptor}");
                found_out += 1;
            }
            // It was exchanged after it had been taken, and the loader found no library in its place, or the
            // helper no block.
            Err(
                InjectError::Refused { .. } | InjectError::Helper { .. } | InjectError::RemoteCall { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(process.is_alive());
    }
    found_out
}

/// A file of root's that no other user may read or write, in a folder that every user may search.
fn secret(folder: &Path) -> PathBuf {
    let path = folder.join("secret");
    fs::write(&path, "as it was").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn no_file_is_overwritten_that_a_thread_puts_in_place_of_the_memory_file() {
    if !is_root() {
        return skip!("needs root, to start programs of another user");
    }
    let folder = processes::directory();
    let secret = secret(folder.path());
    let found_out = inject_while_swapped("thread", &secret);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was");
    assert!(found_out > 0, "in {TRIES} tries the file was never exchanged in time");
}

#[test]
fn processes_that_share_descriptors_are_no_better() {
    if !is_root() {
        return skip!("needs root, to start programs of another user");
    }
    let folder = processes::directory();
    let secret = secret(folder.path());
    let found_out = inject_while_swapped("process", &secret);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was");
    assert!(found_out > 0, "in {TRIES} tries the file was never exchanged in time");
}

#[test]
fn a_pipe_in_place_of_the_memory_file_holds_nobody_up() {
    if !is_root() {
        return skip!("needs root, to start programs of another user");
    }
    let folder = processes::directory();
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let found_out = inject_while_swapped("thread", &pipe);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(&pipe).unwrap().size(), 0);
    assert!(found_out > 0, "in {TRIES} tries the file was never exchanged in time");
}

/// A set-user-ID program of root: any user executes it with root's rights.
fn set_user_id(folder: &Path) -> PathBuf {
    let waits = compile("waits.c");
    let path = folder.join("waits");
    copy_program(waits.program(), &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    path
}

fn program_of(process: &Process) -> PathBuf {
    process.executable().unwrap()
}

fn has_helper(process: &Process) -> bool {
    process.regions().unwrap().iter().any(|region| region.name.to_string_lossy().contains("memfd:speed-bump"))
}

#[test]
fn a_program_that_is_executed_meanwhile_gets_no_helper() {
    if !is_root() {
        return skip!("needs root, to start programs of another user");
    }
    let folder = processes::directory();
    let (executes, other) = (compile("executes.c"), set_user_id(folder.path()));
    let running = Running::start_and_wait(Command::new(executes.program()).arg(&other));
    let process = Process::open(running.pid()).unwrap();
    let program = process.program().unwrap();
    process.check_program(&program).unwrap();
    rustix::process::pidfd_send_signal(&process, rustix::process::Signal::USR1).unwrap();
    wait_for("the exec", || (program_of(&process) == other).then_some(())).unwrap();
    let error = support::inject_into(&process, &program).unwrap_err();
    let told = error.to_string();
    assert!(matches!(error, InjectError::Process(ProcessError::OtherProgram { .. })), "{told}");
    assert!(
        told.contains("/program when it was inspected, and now runs") && told.contains("/waits;"),
        "{told}"
    );
    assert!(!has_helper(&process));
    // On a new inspection, it is a process like any other.
    support::leave(&process, &support::inject_here(&process).unwrap());
}

/// The target notices the inspection, when its interpreter is opened, and chooses its moment.
#[test]
fn a_python_that_executes_a_program_of_roots_while_it_is_looked_at() {
    if !is_root() {
        return skip!("needs root, to start programs of another user");
    }
    let folder = processes::directory();
    let other = set_user_id(folder.path());
    let interpreter = folder.path().join("python3");
    // No other process opens a copy. The library is found by the path that the system's Python was built
    // with.
    copy_program(&fs::canonicalize("/usr/bin/python3").unwrap(), &interpreter).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("injection/hostile_injection/executes.py");
    let targets = folder.path().join("targets.txt");
    fs::write(&targets, "*/executes.py:work delay=1us\n").unwrap();
    let mut executed = 0;
    for (times, pause) in (1..=8).flat_map(|times| ["0", "0.002"].map(|pause| (times, pause))) {
        let mut command = Command::new(&interpreter);
        command.arg(&script).arg(&other).arg(times.to_string()).arg(pause);
        let running = Running::start_and_wait(&mut command);
        let process = Process::open(running.pid()).unwrap();
        let (pid, targets) = (running.pid().to_string(), targets.display().to_string());
        let arguments = ["--pid", &pid, "--targets", &targets, "--duration", "300ms"];
        let run = tool::run(&arguments, Duration::from_secs(60)).unwrap();
        let is_other = program_of(&process) == other;
        assert!(!(is_other && has_helper(&process)), "at opening {times} and {pause} s: {}", run.stderr);
        executed += usize::from(is_other);
        eprintln!("{times} {pause}: {is_other} {:?} {}", run.status.code(), run.stderr);
    }
    assert!(executed > 0, "it never executed the program");
}

/// A control group with a limit to its memory, which goes with this value.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn make(name: &str) -> Result<Self, String> {
        // Version 1, or version 2 where its root has the controller.
        let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(Path::new);
        let has_memory = |root: &&Path| {
            let controllers = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
            root.join("memory.limit_in_bytes").exists()
                || controllers.split_whitespace().any(|one| one == "memory")
        };
        let root = roots.into_iter().find(has_memory).ok_or("no memory controller is mounted and enabled")?;
        let folder = root.join(format!("speed-bump-test-{}-{name}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    fn write(&self, names: [&str; 2], value: u64) {
        let file = names.iter().map(|name| self.0.join(name)).find(|file| file.exists()).unwrap();
        fs::write(file, value.to_string()).unwrap();
    }

    fn usage(&self) -> u64 {
        let names = ["memory.usage_in_bytes", "memory.current"];
        let text = names.iter().find_map(|name| fs::read_to_string(self.0.join(name)).ok()).unwrap();
        text.trim().parse().unwrap()
    }

    /// What the kernel may drop to make room.
    fn dropped(&self) -> u64 {
        let stat = fs::read_to_string(self.0.join("memory.stat")).unwrap();
        let line =
            |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        line("total_inactive_file ").or_else(|| line("inactive_file ")).unwrap_or(0)
    }

    /// Leaves so much until the limit.
    fn leave(&self, bytes: u64) {
        let limit = self.usage() - self.dropped() + bytes;
        self.write(["memory.limit_in_bytes", "memory.max"], limit);
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Until the process that was in it is gone, the folder cannot be removed.
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_service_near_its_memory_limit_lives_on_without_the_helper() {
    if !is_root() {
        return skip!("needs root, to make a control group");
    }
    let group = match MemoryGroup::make("limit") {
        Ok(group) => group,
        Err(why) => return skip!("no control group with a memory limit: {why}"),
    };
    let folder = processes::directory();
    let script = folder.path().join("service.py");
    fs::write(
        &script,
        "import time\ndef work():\n    time.sleep(0.001)\nprint('ready', flush=True)\nwhile \
                        True:\n    work()\n",
    )
    .unwrap();
    let targets = folder.path().join("targets.txt");
    fs::write(&targets, "*/service.py:work delay=1us\n").unwrap();
    let enter =
        format!("echo $$ > {}/cgroup.procs && exec /usr/bin/python3 {}", group.0.display(), script.display());
    let running = Running::start_and_wait(Command::new("sh").arg("-c").arg(enter));
    let process = Process::open(running.pid()).unwrap();
    let attach = || {
        let (pid, targets) = (running.pid().to_string(), targets.display().to_string());
        tool::run(&["--pid", &pid, "--targets", &targets, "--duration", "300ms"], Duration::from_secs(60))
            .unwrap()
    };
    group.leave(64 << 10);
    let run = attach();
    assert!(process.is_alive(), "{}", run.stderr);
    assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
    assert!(run.stderr.contains("raise the limit") && run.stderr.contains(" KiB left"), "{}", run.stderr);
    assert!(!has_helper(&process));
    group.leave(64 << 20);
    let run = attach();
    assert!(run.status.success() && process.is_alive(), "{}", run.stderr);
}
