//! A sweep whose output blocks: delays end, and signals end the sweep.

#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    fs::{OFlags, fcntl_setfl},
    process::{Pid, Signal, kill_process},
    termios::{Action, tcflow},
};
use speed_bump_testing::{
    Service, pythons,
    pythons::{Form, PythonBuild},
    session::obstacle,
    skip,
    tool::{self, Running},
    wait::{PATIENCE, wait_for_exit, wait_until},
};

use crate::{planted::planted_with, share::Share};

/// Calls a function again and again, and says how many of its calls began late.
const CALLER: &str = r#"
import json, os, sys, threading, time

calls = late = 0


def render(called):
    global calls, late
    began = time.perf_counter()
    late += began - called > 0.0001
    calls += 1
    while time.perf_counter() < began + 0.0004:
        pass


def unit():
    """A unit of work was done."""


def work():
    while True:
        time.sleep(0.004)
        render(time.perf_counter())
        unit()


threading.Thread(target=work, daemon=True).start()
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
for command in sys.stdin:
    print(json.dumps({"event": "calls", "calls": calls, "late": late}))
    print(json.dumps({"event": "done", "command": command.strip()}), flush=True)
"#;

/// A terminal that takes everything, until its standard input ends.
const TERMINAL: &str = r#"
import os, pty, sys, threading
master, slave = pty.openpty()
print(os.ttyname(slave), flush=True)

def drain():
    while os.read(master, 65536):
        pass

threading.Thread(target=drain, daemon=True).start()
sys.stdin.read()
"#;

/// What is killed when the test is over.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Killed {
    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
    }
}

fn python() -> Option<&'static PythonBuild> {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return None;
    }
    let python = pythons().iter().rfind(|python| python.form == Form::Direct);
    if python.is_none() {
        skip!("this machine has no Python 3.8 or newer");
    }
    python
}

fn caller(python: &PythonBuild, folder: &Path) -> Service {
    let script = folder.join("caller.py");
    fs::write(&script, CALLER).unwrap();
    Service::start(&mut python.command(&script)).unwrap()
}

fn sweep(service: &Service) -> Command {
    let mut command = Command::new(tool::path().unwrap());
    command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/caller.py:render"]);
    command.args(["--progress", "*/caller.py:unit", "--for", "60s", "--max-slowdown", "50%"]);
    command
}

/// Calls so far, and how many of those were late.
fn counts(service: &mut Service) -> (u64, u64) {
    let answer = service.ask("calls").unwrap();
    (answer[0]["calls"].as_u64().unwrap(), answer[0]["late"].as_u64().unwrap())
}

/// The share of calls in the next second that are late.
fn late(service: &mut Service) -> f64 {
    let (calls, late) = counts(service);
    thread::sleep(Duration::from_secs(1));
    let (more, later) = counts(service);
    (later - late) as f64 / (more - calls).max(1) as f64
}

#[test]
fn a_frozen_terminal_ends_delays_and_a_signal_ends_the_sweep() {
    let Some(python) = python() else { return };
    let _share = Share::tiny();
    let folder = tempfile::tempdir().unwrap();
    let mut service = caller(python, folder.path());
    let mut holder = python.interpreter();
    holder.args(["-c", TERMINAL]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = Killed(holder.spawn().unwrap());
    let mut name = String::new();
    BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut name).unwrap();
    let terminal = || OpenOptions::new().write(true).open(name.trim()).unwrap();

    let mut command = sweep(&service);
    command.stdin(Stdio::null()).stdout(terminal()).stderr(terminal()).env("TERM", "xterm");
    let mut sweep = Killed(command.spawn().unwrap());
    wait_until("calls are delayed", || Ok(late(&mut service) > 0.2)).unwrap();
    // Ctrl-S.
    tcflow(terminal(), Action::OOff).unwrap();
    // Slices without delays take less than a second, as those with delays do.
    wait_until("no calls are delayed any more", || Ok((0..3).all(|_| late(&mut service) < 0.05))).unwrap();
    assert!(sweep.0.try_wait().unwrap().is_none());
    kill_process(sweep.pid(), Signal::TERM).unwrap();
    let status = wait_for_exit(&mut sweep.0).unwrap();
    assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{status}");
}

/// The helper leaves a tool that is stopped, and what counts units knows nothing of that.
#[test]
fn a_sweep_that_was_stopped_meanwhile_gives_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("units");
    let Some(service) = planted_with("logged", &[log.to_str().unwrap()]) else { return };
    let count = format!("command:while sleep 0.005; do stat -c %s {}; done", log.display());
    let mut command = Command::new(tool::path().unwrap());
    command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render"]);
    command.args(["--closed-loop", "--for", "15s", "--metric", &count]);
    let mut sweep = Running::start(&mut command).unwrap();
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    sweep.signal(Signal::STOP).unwrap();
    thread::sleep(Duration::from_millis(2_500));
    sweep.signal(Signal::CONT).unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    let shown = format!("{}\n{}", run.stdout, run.stderr);
    assert!(run.stdout.starts_with("No verdict: "), "{shown}");
    assert!(run.stdout.contains("has left: was the tool stopped"), "{shown}");
}

#[test]
fn a_second_signal_ends_a_sweep_whose_output_nobody_takes() {
    let Some(python) = python() else { return };
    let _share = Share::tiny();
    let folder = tempfile::tempdir().unwrap();
    let service = caller(python, folder.path());
    let (_nobody, full) = io::pipe().unwrap();
    fill(&full);
    let mut sweep = Killed(sweep(&service).stdin(Stdio::null()).stderr(full).spawn().unwrap());
    let call = format!("/proc/{}/syscall", sweep.0.id());
    wait_until("it waits in a write to standard error", || {
        Ok(fs::read_to_string(&call)?.starts_with(&format!("{} 0x2 ", libc::SYS_write)))
    })
    .unwrap();
    kill_process(sweep.pid(), Signal::INT).unwrap();
    // Two that come as one are one.
    let pending = format!("/proc/{}/status", sweep.0.id());
    wait_until("the first is taken", || {
        let status = fs::read_to_string(&pending)?;
        let is_none = |line: &str| line.starts_with("ShdPnd:") && line.ends_with("0000000000000000");
        Ok(status.lines().any(is_none))
    })
    .unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(sweep.0.try_wait().unwrap().is_none(), "it ends with its report");
    kill_process(sweep.pid(), Signal::INT).unwrap();
    let status = wait_for_exit(&mut sweep.0).unwrap();
    assert_eq!((status.code(), status.signal()), (Some(128 + libc::SIGINT), None), "{status}");
}

/// Fills a pipe to its end, for writers that wait.
fn fill(pipe: &io::PipeWriter) {
    fcntl_setfl(pipe, OFlags::NONBLOCK).unwrap();
    let mut pipe: &io::PipeWriter = pipe;
    let error = loop {
        if let Err(error) = pipe.write(b"x") {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    fcntl_setfl(pipe, OFlags::empty()).unwrap();
}
