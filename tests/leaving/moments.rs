//! A tool that is stopped or killed at any moment, whatever it does: its target goes on, soon undelayed, and
//! the next session is exact.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use speed_bump_testing::{
    Attached, PythonBuild, Service, pythons,
    pythons::Form,
    session::obstacle,
    skip, tool,
    wait::{wait_for, wait_for_exit, wait_until},
};

/// Calls a function each 4 ms, and says how late the best of the next calls began; the command is how many.
/// It also writes that into a file, again and again, if it has an argument.
const CALLER: &str = r#"
import json, os, sys, threading, time

lates = []


def render(called):
    began = time.perf_counter()
    lates.append(began - called)
    while time.perf_counter() < began + 0.0004:
        pass


def unit():
    """A unit of work was done."""


def work():
    while True:
        time.sleep(0.004)
        render(time.perf_counter())
        unit()


def least(count):
    first = len(lates)
    while len(lates) < first + count:
        time.sleep(0.01)
    return int(min(lates[first:]) * 1e9)


threading.Thread(target=work, daemon=True).start()
if len(sys.argv) > 1:
    while True:
        with open(sys.argv[1] + ".new", "w") as file:
            print(least(20), file=file)
        os.rename(sys.argv[1] + ".new", sys.argv[1])
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
for command in sys.stdin:
    print(json.dumps({"event": "least", "ns": least(int(command))}))
    print(json.dumps({"event": "done", "command": command.strip()}), flush=True)
"#;

const TARGET: &str = "*/caller.py:render";
/// Far less than the time for which a thread has a processor to itself on a busy machine.
const DELAY_NS: u64 = 500_000;
/// What a call after a sleep takes is subtracted, and differs by as much.
const COLD_NS: u64 = 2_000;
/// The smallest dose of a sweep is longer; a call without a delay takes a microsecond or two.
const DELAYED_NS: u64 = 60_000;
/// By then no call is delayed any more.
const EXPIRED: Duration = Duration::from_millis(1_500);
/// We check exactness one session at a time.
static TURN: Mutex<()> = Mutex::new(());

/// How many moments are tried. More by hand: SPEED_BUMP_STOPS=200.
fn moments() -> u32 {
    std::env::var("SPEED_BUMP_STOPS").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
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

/// A tool that is killed at the end, should it be there still.
struct Tool(Child);

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Tool {
    fn start(command: &mut Command) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap(), signal).unwrap();
    }

    /// Lets it go on, and ends it by a signal.
    fn end(mut self, signal: Signal) {
        self.signal(Signal::CONT);
        self.signal(signal);
        let ended = wait_for_exit(&mut self.0);
        assert!(ended.is_ok(), "{signal:?} does not end it");
    }
}

/// Does this at so many moments of some seconds, the same ones each time, some of them at once: with which
/// signal, and when.
fn at_each_moment(seconds: f64, test: impl Fn(u32, Signal, Duration) + Sync) {
    const AT_ONCE: u32 = 10;
    let count = moments();
    for first in (0..count).step_by(AT_ONCE as usize) {
        thread::scope(|scope| {
            for number in first..count.min(first + AT_ONCE) {
                let (test, signal) = (&test, if number % 2 == 0 { Signal::STOP } else { Signal::KILL });
                // All over the time, however many there are.
                let place = (f64::from(number) * 0.618_034).fract();
                scope.spawn(move || test(number, signal, Duration::from_secs_f64(place * seconds)));
            }
        });
    }
}

fn least_ns(service: &mut Service, calls: u32) -> u64 {
    service.ask(&calls.to_string()).unwrap()[0]["ns"].as_u64().unwrap()
}

fn caller(python: &PythonBuild, script: &Path) -> Service {
    Service::start(&mut python.command(script)).unwrap()
}

fn script(folder: &Path) -> std::path::PathBuf {
    let script = folder.join("caller.py");
    fs::write(&script, CALLER).unwrap();
    script
}

/// Stops or kills this tool, whose target a service is, at each moment.
fn leaves_its_target_alone(seconds: f64, arguments: &[&str]) {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path());
    at_each_moment(seconds, |number, signal, moment| {
        let mut service = caller(python, &script);
        let mut command = Command::new(tool::path().unwrap());
        let pid = service.pid().to_string();
        command.args(arguments.iter().map(|text| if *text == "PID" { pid.as_str() } else { text }));
        let tool = Tool::start(&mut command);
        thread::sleep(moment);
        tool.signal(signal);
        thread::sleep(EXPIRED);
        let least = least_ns(&mut service, 20);
        assert!(least < DELAYED_NS, "{number}: {signal:?} after {moment:?}: {least} ns");
        tool.end(if number % 4 == 0 { Signal::TERM } else { Signal::KILL });

        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let session = || Attached::start(service.pid(), &format!("{TARGET}\n"), &["--delay", "500us"]);
        // The helper may take a second to notice that a tool is gone.
        let session = wait_for("another session begins", || session().ok()).unwrap();
        // Of as many calls as it takes until one was not interrupted.
        let exact = DELAY_NS - COLD_NS..DELAY_NS + DELAY_NS / 10;
        let mut least = u64::MAX;
        for _ in 0..30 {
            least = least.min(least_ns(&mut service, 10));
            if least < exact.end {
                break;
            }
        }
        assert!(exact.contains(&least), "{number}: {signal:?} after {moment:?}: then {least} ns");
        session.stop().unwrap();
        let least = least_ns(&mut service, 20);
        assert!(least < DELAYED_NS, "{number}: {signal:?} after {moment:?}: at last {least} ns");
    });
}

#[test]
fn whenever_an_attached_tool_stops_or_dies_its_target_goes_on() {
    leaves_its_target_alone(1.5, &["--pid", "PID", "--target", TARGET, "--delay", "500us"]);
}

#[test]
fn whenever_a_sweep_stops_or_dies_its_target_goes_on() {
    let unit = "*/caller.py:unit";
    let arguments =
        ["sweep", "--pid", "PID", "--target", TARGET, "--progress", unit, "--max-slowdown", "50%"];
    leaves_its_target_alone(10.0, &[&arguments[..], &["--for", "10s"]].concat());
}

/// The child of a process, if it has one.
fn child(of: &Child) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", of.id())).ok()?;
    children.split_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
}

/// What a process is, and whether it is there and no zombie.
fn state(pid: Pid) -> Option<(String, char)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    Some((name.to_owned(), rest.trim_start().chars().next()?)).filter(|(_, state)| *state != 'Z')
}

fn state_of(run: &Child) -> Option<(String, char)> {
    state(child(run)?)
}

/// A command that `run` has started. Killed in the end, even if it has another parent by then.
struct Started {
    pid: Pid,
    held: OwnedFd,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.held, Signal::KILL);
    }
}

impl Started {
    fn by(run: &Child) -> Option<Self> {
        let pid = child(run)?;
        Some(Self { pid, held: pidfd_open(pid, PidfdFlags::empty()).ok()? })
    }
}

#[test]
fn whenever_run_stops_or_dies_its_command_goes_on() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path());
    at_each_moment(1.5, |number, signal, moment| {
        let file = folder.path().join(number.to_string());
        let mut command = Command::new(tool::path().unwrap());
        command.args(["run", "--target", TARGET, "--delay", "500us", "--"]);
        let child_command = python.command(&script);
        command.arg(child_command.get_program()).args(child_command.get_args()).arg(&file);
        let tool = Tool::start(&mut command);
        thread::sleep(moment);
        let mut started = Started::by(&tool.0);
        // One that has not executed the command yet ends with the tool.
        let is_python =
            |started: &Started| state(started.pid).is_some_and(|(name, _)| name.starts_with("python"));
        let mut goes_on = started.as_ref().is_some_and(is_python);
        tool.signal(signal);
        if signal == Signal::STOP {
            thread::sleep(EXPIRED);
            // Held until the helper is in, or running on without a delay.
            if file.exists() {
                undelayed(&file, &format!("{number}: stopped after {moment:?}"), &|| state_of(&tool.0));
            }
            tool.signal(Signal::CONT);
            // Where the helper was in, it has left.
            wait_until("the command runs", || Ok(file.exists())).unwrap();
            started = started.or_else(|| Started::by(&tool.0));
            goes_on = true;
            tool.signal(Signal::KILL);
        }
        let Some(started) = started.filter(|_| goes_on) else { return };
        thread::sleep(EXPIRED);
        undelayed(&file, &format!("{number}: {signal:?} after {moment:?}, then killed"), &|| {
            state(started.pid)
        });
        assert!(state(started.pid).is_some(), "{number}");
    });
}

fn least_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// What it writes from now on but for the first, of which calls may have been before.
#[track_caller]
fn undelayed(file: &Path, when: &str, state: &dyn Fn() -> Option<(String, char)>) {
    for _ in 0..2 {
        let _ = fs::remove_file(file);
        let waited = wait_until("calls are made", || Ok(file.exists()));
        assert!(waited.is_ok(), "{when}: no calls are made: {:?}", state());
    }
    let least = least_in(file).unwrap();
    assert!(least < DELAYED_NS, "{when}: {least} ns");
}
