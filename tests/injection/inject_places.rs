//! Targets in namespaces, control groups and file systems of their own: each takes the helper, or is refused
//! with the reason and goes on as it was.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use speed_bump_linux::process::Process;
use speed_bump_session::inject::{InjectError, Limits, inject};
use speed_bump_testing::{Fixture, skip, wait::wait_for};
use speed_bump_tests::processes::{self, Running, is_root};
use speed_bump_units::units::Pid;

use crate::support;

/// A shell that does something in namespaces of its own, and then sleeps as the same process.
struct Confined {
    /// Ended before the rest, which is killed with it.
    _unshare: Running,
    process: Process,
}

impl Confined {
    /// `Err` says what these namespaces cannot be had for.
    fn start(flags: &[&str], preparation: &str) -> Result<Self, String> {
        let mut probe = Command::new("unshare");
        let script = format!("set -e; {preparation}");
        match probe.args(flags).args(["--", "sh", "-c", &script]).output() {
            Err(error) => return Err(format!("no unshare (util-linux): {error}")),
            Ok(output) if output.status.success() => {}
            Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
        let mut command = Command::new("unshare");
        command.args(flags).args(["--kill-child", "--", "sh", "-c", &format!("{script}; exec sleep 1000")]);
        let unshare = Running::start(&mut command);
        let process = wait_for("the program", || sleeping(child(unshare.pid())?)).unwrap();
        Ok(Self { _unshare: unshare, process })
    }

    fn takes_the_helper(&self) {
        let before = support::traces(&self.process);
        let injected = support::inject_here(&self.process).unwrap();
        support::check_and_leave(&self.process, &injected);
        self.goes_on(&before);
    }

    fn goes_on(&self, before: &support::Traces) {
        assert!(self.process.is_alive());
        wait_for("the traces to be as before", || {
            let mut now = support::traces(&self.process);
            // The helper's thread ends a moment after it left.
            now.masks.truncate(before.masks.len());
            (now == *before).then_some(())
        })
        .unwrap();
        wait_for("sleep as before", || sleeping(self.process.pid())).unwrap();
    }

    fn refuses(&self, is_expected: impl Fn(&InjectError) -> bool) {
        let before = support::traces(&self.process);
        let error = support::inject_here(&self.process).unwrap_err();
        assert!(is_expected(&error), "{error}");
        println!("{error}");
        self.goes_on(&before);
    }
}

fn child(parent: Pid) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    Pid::new(children.trim().parse().ok()?)
}

/// The process, once it sleeps in `clock_nanosleep`, or in `restart_syscall`, as the kernel continues that.
fn sleeping(pid: Pid) -> Option<Process> {
    let process = Process::open(pid).ok()?;
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let sleeps = call.starts_with("230 ") || call.starts_with("219 ");
    (process.comm().ok()? == "sleep" && sleeps).then_some(process)
}

/// With a PID namespace each has a `vm.memfd_noexec` of its own, and nothing else of the machine changes.
const OWN_PIDS: [&str; 3] = ["--pid", "--fork", "--mount-proc"];

#[test]
fn executable_memory_files_are_forbidden() {
    for (value, allowed) in [(1, true), (2, false)] {
        let preparation = format!("echo {value} > /proc/sys/vm/memfd_noexec");
        let confined = match Confined::start(&OWN_PIDS, &preparation) {
            Ok(confined) => confined,
            Err(why) => return skip!("needs root and a vm.memfd_noexec for each PID namespace: {why}"),
        };
        if allowed {
            confined.takes_the_helper();
        } else {
            confined.refuses(|error| matches!(error, InjectError::NoExecutableMemfd { .. }));
        }
    }
}

#[test]
fn there_is_no_proc() {
    let confined = match Confined::start(&["--mount"], "umount --lazy /proc") {
        Ok(confined) => confined,
        Err(why) => return skip!("needs root and mount namespaces: {why}"),
    };
    confined.refuses(|error| matches!(error, InjectError::NoProc { .. }));
}

/// It shows the processes of a namespace that the target is not in, so that the target has no /proc/self.
#[test]
fn the_proc_is_of_other_processes() {
    let owner = match Confined::start(&OWN_PIDS, "true") {
        Ok(owner) => owner,
        Err(why) => return skip!("needs root and PID namespaces: {why}"),
    };
    let mut command = Command::new("nsenter");
    let target = owner.process.pid().to_string();
    let running = Running::start(command.args(["--target", &target, "--mount", "sleep", "1000"]));
    let process = wait_for("the program", || sleeping(running.pid())).unwrap();
    let before = support::traces(&process);
    let error = support::inject_here(&process).unwrap_err();
    assert!(matches!(error, InjectError::Refused { .. }), "{error}");
    assert_eq!(support::traces(&process), before);
    wait_for("sleep as before", || sleeping(running.pid())).unwrap();
}

#[test]
fn nothing_may_be_executed_from_its_file_systems() {
    let preparation = "for place in /proc /tmp /dev/shm; do
        mountpoint -q $place || mount --bind $place $place
        mount -o remount,bind,noexec,nosuid,nodev $place
    done";
    match Confined::start(&["--mount"], preparation) {
        Ok(confined) => confined.takes_the_helper(),
        Err(why) => skip!("needs root and mount namespaces: {why}"),
    }
}

#[test]
fn user_and_process_ids_are_its_own() {
    let flags = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    match Confined::start(&flags, "true") {
        Ok(confined) => confined.takes_the_helper(),
        Err(why) => skip!("needs user namespaces: {why}"),
    }
}

/// Of the processes of one that is not root, nothing but ptrace's own rules keeps us.
#[test]
fn a_user_namespace_of_nobody() {
    if !is_root() {
        return skip!("needs root, to become another user");
    }
    let flags = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    match Confined::start(&flags, "true") {
        Ok(confined) => {
            let image = support::image();
            let error = processes::as_nobody(|| {
                support::inject_known(&confined.process, image, 0, Limits::default(), &[]).unwrap_err()
            });
            assert!(error.to_string().contains("CAP_SYS_PTRACE"), "{error}");
            confined.takes_the_helper();
        }
        Err(why) => skip!("needs user namespaces: {why}"),
    }
}

/// A control group that can be frozen, with one process in it.
struct Group {
    folder: PathBuf,
    /// The file that freezes it, and what is written there to freeze and to thaw.
    switch: (&'static str, &'static str, &'static str),
}

impl Group {
    /// Of the unified hierarchy, or of the freezer's own, as hierarchies were before.
    fn make(unified: bool) -> Result<Self, String> {
        Self::make_named("whole", unified)
    }

    fn make_named(name: &str, unified: bool) -> Result<Self, String> {
        let name = format!("speed-bump-test-{}-{name}", std::process::id());
        let roots: &[&str] =
            if unified { &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] } else { &["/sys/fs/cgroup/freezer"] };
        let marker = if unified { "cgroup.controllers" } else { "tasks" };
        let root = roots.iter().find(|root| Path::new(root).join(marker).exists());
        let folder = Path::new(root.ok_or("no such hierarchy is mounted")?).join(name);
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let switch =
            if unified { ("cgroup.freeze", "1", "0") } else { ("freezer.state", "FROZEN", "THAWED") };
        let group = Self { folder, switch };
        if !group.folder.join(group.switch.0).exists() {
            return Err(format!("no {} in a group of {root:?}", group.switch.0));
        }
        Ok(group)
    }

    fn take(&self, pid: Pid) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    fn freeze(&self) {
        fs::write(self.folder.join(self.switch.0), self.switch.1).unwrap();
    }

    fn is_frozen(&self) -> bool {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("cgroup.events").contains("frozen 1") || read("freezer.state").trim() == "FROZEN"
    }

    fn thaw(&self) {
        fs::write(self.folder.join(self.switch.0), self.switch.2).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.thaw();
        // Until the process that was in it is gone, the folder cannot be removed.
        for _ in 0..1000 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn sleeper_in(group: &Group) -> (Running, Process) {
    let running = Running::start(Command::new("sleep").arg("1000"));
    let process = wait_for("the program", || sleeping(running.pid())).unwrap();
    group.take(running.pid());
    (running, process)
}

fn frozen(unified: bool) {
    if !is_root() {
        return skip!("needs root, to make a control group");
    }
    let group = match Group::make(unified) {
        Ok(group) => group,
        Err(why) => return skip!("no control group that can be frozen: {why}"),
    };
    let (running, process) = sleeper_in(&group);
    let before = support::traces(&process);
    group.freeze();
    wait_for("the freeze", || group.is_frozen().then_some(())).unwrap();
    let error = support::inject_here(&process).unwrap_err();
    assert!(matches!(error, InjectError::Frozen { .. }), "{error}");
    assert!(group.is_frozen(), "still frozen");
    group.thaw();
    wait_for("the thaw", || sleeping(running.pid())).unwrap();
    assert_eq!(support::traces(&process), before);
    let injected = support::inject_here(&process).unwrap();
    support::check_and_leave(&process, &injected);
    running.end();
}

#[test]
fn a_frozen_group() {
    frozen(true);
}

#[test]
fn a_frozen_group_of_the_old_kind() {
    frozen(false);
}

/// It cannot be told from one that is slow: it is let go, and finishes what it was made to do once it may
/// run.
#[test]
fn a_group_that_is_frozen_in_the_middle() {
    if !is_root() {
        return skip!("needs root, to make a control group");
    }
    let group = match Group::make_named("middle", true) {
        Ok(group) => group,
        Err(why) => return skip!("no control group that can be frozen: {why}"),
    };
    let (running, process) = sleeper_in(&group);
    let before = support::traces(&process);
    let mut block = None;
    let mut fill = |file: &fs::File| {
        file.set_len(4096)?;
        file.write_all_at(b"W", 0)?;
        block = Some(file.try_clone()?);
        group.freeze();
        Ok(())
    };
    let limits = Limits { call: Duration::from_millis(100), ..Limits::default() };
    let program = process.program().unwrap();
    let error = inject(&process, &program, support::image(), &[], &mut fill, limits).unwrap_err();
    assert!(matches!(error, InjectError::LeftAlone { .. }), "{error}");
    println!("{error}");
    group.thaw();
    let block = block.unwrap();
    wait_for("the helper", || support::has_begun(&block).then_some(())).unwrap();
    support::leave_block(&process, &block);
    wait_for("everything to be as it was", || {
        let now = support::traces(&process);
        (now == before).then_some(())
    })
    .unwrap();
    running.end();
}

#[test]
fn a_thread_with_descriptors_of_its_own() {
    let source = "#define _GNU_SOURCE\n\
        #include <pthread.h>\n\
        #include <sched.h>\n\
        #include <unistd.h>\n\
        static void *waits(void *nothing) {\n\
            if (unshare(CLONE_FILES) || write(1, \"\\n\", 1) != 1) return nothing;\n\
            close(1);\n\
            for (;;) pause();\n\
        }\n\
        int main(void) {\n\
            pthread_t thread;\n\
            if (pthread_create(&thread, 0, waits, 0)) return 1;\n\
            for (volatile int busy = 1; busy;) ;\n\
        }";
    let program = Fixture::compile_text(source, &["-pthread"]).unwrap();
    let running = Running::start_and_wait(&mut Command::new(program.program()));
    let process = Process::open(running.pid()).unwrap();
    // PIDFD_THREAD is known from Linux 6.9 on.
    let flags = rustix::process::PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
    let is_known = rustix::process::pidfd_open(rustix::process::getpid(), flags).is_ok();
    match (support::inject_here(&process), is_known) {
        (Ok(injected), true) => {
            assert_ne!(injected.thread, process.pid(), "the other thread never waits");
            support::check_and_leave(&process, &injected);
        }
        (Err(InjectError::OwnDescriptors { thread, .. }), false) => assert_ne!(thread, process.pid()),
        (result, _) => panic!("{result:?}"),
    }
    assert!(process.is_alive());
}
