//! Threads are borrowed out of every blocking system call, several times each; each call then returns what it would
//! have returned, and a timed one ends when it would have ended.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "inject/support.rs"]
mod support;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use speed_bump_testing::Fixture;

/// What `calls.c` waits for, `TIME_MS`.
const TIME: Duration = Duration::from_millis(3000);
/// Where in that time it is interrupted: a call that began anew after the last would take 1.8 times as long.
const INTERRUPTED_AT: [u32; 3] = [20, 50, 80];
/// What tells these apart on a busy machine.
const LATEST: Duration = Duration::from_millis(5000);
/// Calls that the kernel ends with `EINTR` when a process is stopped and continued (signal(7)), if they have a limit.
const NOTICED: [&str; 6] =
    ["epoll_wait", "epoll_pwait", "recv_timeout", "sigtimedwait", "semtimedop", "io_getevents"];

struct Waiting {
    child: Child,
    output: BufReader<ChildStdout>,
    since: Instant,
}

/// What a call came to.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    result: i64,
    errno: i32,
}

impl Waiting {
    fn start(program: &Path, name: &str) -> Self {
        let mut command = Command::new(program);
        let mut child = command.arg(name).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{name}");
        Self { child, output, since: Instant::now() }
    }

    fn release(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn outcome(mut self) -> (Outcome, Duration) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        let numbers: Vec<i64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [result, errno, milliseconds] = numbers[..] else { panic!("{line}") };
        let outcome = Outcome { result, errno: errno.try_into().unwrap() };
        (outcome, Duration::from_millis(milliseconds.try_into().unwrap()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interrupt(waiting: &Waiting, name: &str) {
    let process = support::open(waiting.child.id().cast_signed());
    let injected = support::inject_here(&process).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(injected.thread, process.pid(), "{name}: another thread than the one that waits was borrowed");
    support::check_and_leave(&process, &injected);
}

fn untimed(program: &Path, name: &str) -> Option<String> {
    let mut alone = Waiting::start(program, name);
    // A signal that comes before the call has begun would be lost.
    let process = support::open(alone.child.id().cast_signed());
    support::wait_for("the call", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).ok()?;
        stat.contains(") S ").then_some(())
    });
    std::thread::sleep(Duration::from_millis(100));
    alone.release();
    let (expected, _) = alone.outcome();
    let mut waiting = Waiting::start(program, name);
    for _ in 0..3 {
        interrupt(&waiting, name);
    }
    waiting.release();
    let (outcome, _) = waiting.outcome();
    (outcome != expected).then(|| format!("{name}: {outcome:?}, alone {expected:?}"))
}

fn timed(program: &Path, name: &str) -> Option<String> {
    let noticed = NOTICED.contains(&name);
    let waiting = Waiting::start(program, name);
    for part in INTERRUPTED_AT {
        let at = waiting.since + TIME * part / 100;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        interrupt(&waiting, name);
        if noticed {
            break;
        }
    }
    let (outcome, time) = waiting.outcome();
    if noticed {
        let expected = Outcome { result: -1, errno: libc::EINTR };
        return (outcome != expected).then(|| format!("{name}: {outcome:?} after {time:?}"));
    }
    let (expected, _) = Waiting::start(program, name).outcome();
    // Clocks of the kernel's timers and ours may differ by a tick.
    let in_time = time + Duration::from_millis(20) >= TIME && time < LATEST;
    (outcome != expected || !in_time)
        .then(|| format!("{name}: {outcome:?} after {time:?}, alone {expected:?}"))
}

#[test]
fn calls_return_what_they_would_have_when_they_would_have() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inject/calls.c");
    let fixture = Fixture::compile(&source, &["-O1", "-pthread", "-lrt"]).unwrap();
    let list = Command::new(fixture.program()).output().unwrap().stdout;
    let list = String::from_utf8(list).unwrap();
    support::image();
    let lines: Vec<&str> = list.lines().collect();
    let mut wrong = Vec::new();
    // Few at a time: an injection must come before the call that it is to interrupt is over.
    for some in lines.chunks(4) {
        let program = fixture.program();
        let run = |line: &str| {
            let (name, kind) = line.split_once(' ').unwrap();
            if kind == "timed" { timed(program, name) } else { untimed(program, name) }
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = some.iter().map(|line| (line, scope.spawn(|| run(line)))).collect();
            for (line, thread) in running {
                wrong.extend(thread.join().unwrap_or_else(|_| Some(format!("{line}: see above"))));
            }
        });
    }
    assert!(list.lines().count() >= 35, "{list}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
