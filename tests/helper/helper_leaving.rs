//! How the helper leaves a process, and what it leaves there.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs::{self, File},
    io::Write as _,
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};
use speed_bump_testing::{
    PythonBuild, Service, case_ran, session, skip_case,
    tool::Running,
    wait::{PATIENCE, wait_until},
};
use speed_bump_tests::calls::start;
use speed_bump_tests::helper::{attach, images, on_each, threads, tools};
use tempfile::TempDir;

const TARGETS: &str = "*/calls.py:plain\n";

#[test]
fn nothing_is_left_but_an_image_that_sleeps() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let pid = service.pid();
        let session = attach(&service, TARGETS, &[]);
        assert_eq!((threads(pid), images(pid)), (1, 1), "{python}");
        let tool = usize::from(python.minor() >= (3, 12));
        assert_eq!(tools(python, &mut service).len(), tool, "{python}");
        session.stop().unwrap();
        // The tool waited for it.
        assert_eq!(tools(python, &mut service).len(), 0, "{python}");
        wait_until("the helper's thread has ended", || Ok(threads(pid) == 0)).unwrap();
        service.ask("times(10, plain, 1)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn a_tool_that_is_killed_is_missed() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let pid = service.pid();
        let session = attach(&service, TARGETS, &["--delay", "20us"]);
        service.ask("times(10, plain, 1)").unwrap();
        session.kill().unwrap();
        wait_until("the helper has left", || Ok(threads(pid) == 0 && tools(python, &mut service).is_empty()))
            .unwrap_or_else(|error| panic!("{python}: {error}"));
        service.ask("times(10, plain, 1)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn the_next_session_finds_the_helper_there() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let pid = service.pid();
        for round in 0..5 {
            // Other targets, and so other functions, each time.
            let (targets, command) = match round % 2 {
                0 => ("*/calls.py:plain\n", "times(20, plain, 1); times(5, other, 1)"),
                _ => ("*/calls.py:other\n", "times(20, other, 1); times(5, plain, 1)"),
            };
            let session = attach(&service, targets, &["--delay", "1us"]);
            service.ask(command).unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(ended.counts(0), (20, 20), "{python}: round {round}");
            assert_eq!(images(pid), 1, "{python}: round {round}");
        }
    });
}

#[test]
fn a_session_after_one_that_was_killed_waits_for_the_helper() {
    on_each(|python| {
        let mut service = start(python, &[]);
        attach(&service, TARGETS, &[]).kill().unwrap();
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        service.ask("times(20, plain, 1)").unwrap();
        assert_eq!(session.stop().unwrap().counts(0), (20, 20), "{python}");
        assert_eq!(images(service.pid()), 1, "{python}");
    });
}

#[test]
fn a_process_that_ends_ends_the_session() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        service.ask("times(20, plain, 1)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
        assert_eq!(session.finish().unwrap().counts(0), (20, 20), "{python}");
    });
}

#[test]
fn a_process_that_is_killed_ends_the_session() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        service.ask("times(20, plain, 1)").unwrap();
        let pid = rustix::process::Pid::from_raw(service.pid()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        assert_eq!(session.finish().unwrap().counts(0), (20, 20), "{python}");
    });
}

/// A thread of the process that holds the interpreter's lock, in a call of C code, until this is dropped.
struct LockHeld {
    pipe: File,
    _folder: TempDir,
}

impl LockHeld {
    fn by(python: &PythonBuild, service: &mut Service) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let pipe = File::options().read(true).write(true).open(&path).unwrap();
        let inside = python.inside(&path);
        let hold = format!(
            "import time; FD = os.open({inside:?}, os.O_RDWR); BYTE = ctypes.create_string_buffer(1); \
             threading.Thread(target=lambda: (time.sleep(0.3), ctypes.PyDLL(None).read(FD, BYTE, 1))).start()"
        );
        service.ask(&hold).unwrap();
        // The main thread waits for its input at another pipe.
        let pid = service.pid();
        wait_until("a thread holds the lock", || Ok(reading_pipes(pid) >= 2)).unwrap();
        Self { pipe, _folder: folder }
    }
}

impl Drop for LockHeld {
    fn drop(&mut self) {
        let _ = self.pipe.write_all(b"x");
    }
}

/// Threads of a process that wait for a pipe to be written to.
fn reading_pipes(pid: i32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let places = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("wchan")).ok());
    places.filter(|place| place.contains("pipe_read")).count()
}

#[test]
fn who_waits_for_the_interpreter_answers_signals() {
    on_each(|python| {
        if python.free_threaded {
            return skip_case!(python, "it has no lock to hold");
        }
        case_ran!();
        let mut service = start(python, &[]);
        let held = LockHeld::by(python, &mut service);
        let folder = tempfile::tempdir().unwrap();
        let mut command = session::command(folder.path(), service.pid(), TARGETS, &["-vv"]).unwrap();
        let mut tool = Running::start(&mut command).unwrap();
        tool.wait_for_stderr("the helper is loaded", PATIENCE).unwrap();
        tool.signal(Signal::INT).unwrap();
        let run = tool.finish(PATIENCE).unwrap();
        assert!(run.status.success(), "{python}: {}", run.stderr);
        let why = "stopped by SIGINT before anything was attached";
        assert!(run.stderr.contains(why), "{python}: {}", run.stderr);
        drop(held);
        let pid = service.pid();
        wait_until("the helper has left", || Ok(threads(pid) == 0)).unwrap();
        assert_eq!(tools(python, &mut service).len(), 0, "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn a_busy_interpreter_does_not_keep_the_tool() {
    on_each(|python| {
        if python.free_threaded {
            return skip_case!(python, "it has no lock to hold");
        }
        case_ran!();
        let mut service = start(python, &[]);
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        service.ask("times(10, plain, 1)").unwrap();
        let held = LockHeld::by(python, &mut service);
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (10, 10), "{python}");
        let warning = "the helper had not left after";
        assert!(ended.run.stderr.contains(warning), "{python}: {}", ended.run.stderr);
        drop(held);
        let pid = service.pid();
        wait_until("the helper has left", || Ok(threads(pid) == 0)).unwrap();
        assert_eq!(tools(python, &mut service).len(), 0, "{python}");
        service.ask("times(10, plain, 1)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}
