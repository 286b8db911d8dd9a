//! Error messages state each cause once, and the right one.

#![allow(clippy::unwrap_used, clippy::panic)]

mod conventions;

use std::{fs, io, os::unix::process::CommandExt as _, path::Path, process::Command};

use rustix::{fs::inotify, process::Signal};
use speed_bump_linux::process::ProcessError;
use speed_bump_session::{
    calibrate::CalibrateError, engine::bpf::EngineError, launch::LaunchError, session::SessionError,
};
use speed_bump_testing::{
    Service, everybody,
    session::obstacle,
    skip,
    tool::{self, Run, Running},
    wait::PATIENCE,
};
use speed_bump_tests::helper::GETPPID;
use speed_bump_units::units::Pid;

/// Belongs to `nobody`, like the files of a hostile user.
const NOBODY: u32 = 65_534;

/// Maps many files at the lowest addresses, so that code which searches its files finds these first. A
/// program that is not position-independent begins at 0x400000.
const MAPS_MANY: &str = r#"
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
number = ctypes.c_int
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
folder, count = sys.argv[1], int(sys.argv[2])
for index in range(count):
    with open(f'{folder}/{index}', 'rb') as file:
        place = 0x20000 + index * 0x1000
        # PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE
        assert libc.mmap(place, 4096, 5, 0x100002, file.fileno(), 0) == place, ctypes.get_errno()
print(json.dumps({'event': 'ready', 'pid': os.getpid()}), flush=True)
sys.stdin.read()
"#;

fn tool_with(arguments: &[&str], targets: &str) -> (Command, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets.txt");
    fs::write(&file, targets).unwrap();
    let mut command = Command::new(tool::path().unwrap());
    let (first, rest) = arguments.split_first().unwrap();
    command.arg(first).arg("--targets").arg(file).args(rest);
    (command, folder)
}

fn finish(command: &mut Command) -> Run {
    Running::start(command).unwrap().finish(PATIENCE).unwrap()
}

/// The one line of an error, in which each of these words occurs as often as given.
fn says(run: &Run, code: i32, words: &[(&str, usize)]) {
    assert_eq!(run.status.code(), Some(code), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    for (word, times) in words {
        assert_eq!(run.stderr.matches(word).count(), *times, "`{word}` in: {}", run.stderr);
    }
}

#[test]
fn all_error_types_say_their_cause_themselves() {
    let (types, offenders) = conventions::look_through_the_workspace();
    assert!(types > 40, "only {types} error types were found: is the search broken?");
    assert!(offenders.is_empty(), "{}", offenders.join("\n"));
}

#[test]
fn samples_say_their_cause_once() {
    let denied = || io::Error::from_raw_os_error(libc::EACCES);
    let map = || aya::maps::MapError::CreateError { name: "COUNTERS".into(), io_error: denied() };
    let pid = Pid::own();
    let samples: Vec<anyhow::Error> = vec![
        LaunchError::NotExecutable { program: "x".into(), source: denied() }.into(),
        ProcessError::Io { pid, file: "maps", source: denied() }.into(),
        CalibrateError::Map(map()).into(),
        SessionError::Map(map()).into(),
        SessionError::Engine(EngineError::Map(map())).into(),
        EngineError::Maps(aya::EbpfError::MapError(map())).into(),
    ];
    for error in samples {
        let said = format!("{error:#}");
        assert_eq!(said.matches("Permission denied").count(), 1, "{said}");
        assert_eq!(said, error.to_string(), "all of it is in the error's own words");
        assert!(said.matches("COUNTERS").count() < 2, "{said}");
    }
}

#[test]
fn too_few_descriptors() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for number in [10, 20, 30] {
        let (mut command, _folder) = tool_with(&["run", "--", "true"], GETPPID);
        let limit = rustix::process::Rlimit { current: Some(number), maximum: Some(number) };
        // SAFETY: one system call, which allocates nothing and takes no lock.
        unsafe {
            command
                .pre_exec(move || Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?))
        };
        let words = format!("the limit on open files is {number}");
        says(&finish(&mut command), 4, &[(&words, 1), ("`ulimit -n`", 1)]);
    }
}

#[test]
fn a_file_that_is_not_executable() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain");
    fs::write(&file, "plain\n").unwrap();
    let (mut command, _folder) = tool_with(&["run", "--", file.to_str().unwrap()], GETPPID);
    says(&finish(&mut command), 126, &[("Permission denied", 1), (file.to_str().unwrap(), 1)]);
}

#[test]
fn a_target_that_dies_while_it_is_looked_at_has_ended() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = everybody::python(|_| true).unwrap() else {
        return skip!("{}", everybody::NO_PYTHON);
    };
    let folder = everybody::folder().unwrap();
    let count = 900;
    for index in 0..count {
        fs::write(folder.path().join(index.to_string()), [0; 4096]).unwrap();
    }
    let script = folder.path().join("many.py");
    fs::write(&script, MAPS_MANY).unwrap();
    let mut target = python.command(&script);
    target.arg(folder.path()).arg(count.to_string()).uid(NOBODY).gid(NOBODY);
    let mut service = Service::start(&mut target).unwrap();

    let opened = Opened::watch(&folder.path().join("0"));
    let (mut command, _folder) = tool_with(&["list", "--pid", &service.pid().to_string()], "py:*:*\n");
    let mut running = Running::start(&mut command).unwrap();
    opened.wait();
    // It is stopped while it maps all these files; the interpreter's own is mapped above them.
    running.signal(Signal::STOP).unwrap();
    let pid = rustix::process::Pid::from_raw(service.pid()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    service.wait(PATIENCE).unwrap();
    running.signal(Signal::CONT).unwrap();
    let run = running.finish(PATIENCE).unwrap();
    says(&run, 5, &[("CPython", 0), ("has ended", 1)]);
}

/// Reports when a file is opened.
struct Opened(std::os::fd::OwnedFd);

impl Opened {
    fn watch(file: &Path) -> Self {
        let watcher = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watcher, file, inotify::WatchFlags::OPEN).unwrap();
        Self(watcher)
    }

    fn wait(&self) {
        let mut fds = [rustix::event::PollFd::new(&self.0, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&limit)).unwrap(), 1, "the file was not opened");
    }
}
