//! Threads are borrowed out of every blocking system call, several times each; each call then returns what it
//! would have returned, and a timed one ends earlier than one that began anew would.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use speed_bump_session::inject::Limits;
use speed_bump_testing::{
    Fixture, Lines,
    wait::{wait_for, wait_for_exit},
};

use crate::support;

/// The calls that `calls.c` waits in. If the machine is too busy to interrupt a call three times before it is
/// over, the call gets another try, with a longer time. A call that was interrupted in time gets none.
const TIMES: [Duration; 3] = [Duration::from_secs(3), Duration::from_secs(9), Duration::from_secs(27)];
/// What an untimed call is given, which does not matter.
const UNTIMED: Duration = Duration::from_secs(1);
/// At which part of its time it is interrupted.
const INTERRUPTED_AT: [u32; 3] = [20, 45, 70];
/// How many we run at a time; nearly all of them wait.
const WORKERS: usize = 6;
/// Calls that the kernel ends with `EINTR` when a process is stopped and continued (signal(7)), if they have
/// a limit.
const NOTICED: [&str; 6] =
    ["epoll_wait", "epoll_pwait", "recv_timeout", "sigtimedwait", "semtimedop", "io_getevents"];

struct Waiting {
    child: Child,
    lines: Lines,
    since: Instant,
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    result: i64,
    errno: i32,
}

impl Waiting {
    fn start(program: &Path, name: &str, time: Duration) -> Self {
        let mut command = Command::new(program);
        command.args([name, &time.as_millis().to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::read(child.stdout.take().unwrap());
        assert_eq!(lines.line().unwrap(), "ready", "{name}");
        Self { child, lines, since: Instant::now() }
    }

    fn release(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn outcome(mut self) -> (Outcome, Duration) {
        let line = self.lines.line().unwrap();
        let status = wait_for_exit(&mut self.child).unwrap();
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

/// The call was over before it was interrupted as often as it should be.
struct TooLate;

fn interrupt(waiting: &Waiting, name: &str, before: Option<Instant>) -> Result<(), TooLate> {
    let late = || before.is_some_and(|before| Instant::now() >= before);
    if late() {
        return Err(TooLate);
    }
    let process = support::open(waiting.child.id().cast_signed());
    // No Python: it must be in the call.
    let injected = match support::inject_known(&process, support::image(), b'Q', Limits::default(), &[]) {
        Ok(injected) => injected,
        Err(_) if late() => return Err(TooLate),
        Err(error) => panic!("{name}: {error}"),
    };
    assert_eq!(injected.thread, process.pid(), "{name}: another thread than the one that waits was borrowed");
    // Helpers of this kind leave by themselves; the next needs the place.
    wait_for("the helper to leave", || {
        let regions = process.regions().unwrap_or_default();
        let mapped = regions.iter().any(|region| region.name == "/memfd:speed-bump-control (deleted)");
        (!mapped).then_some(())
    })
    .unwrap();
    assert_eq!(support::calls(&injected), 1, "{name}: speed_bump_attach ran once");
    Ok(())
}

fn untimed(program: &Path, name: &str) -> Option<String> {
    let mut alone = Waiting::start(program, name, UNTIMED);
    // A signal that comes before the call has begun would be lost.
    let process = support::open(alone.child.id().cast_signed());
    wait_for("the call", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).ok()?;
        stat.contains(") S ").then_some(())
    })
    .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    alone.release();
    let (expected, _) = alone.outcome();
    let mut waiting = Waiting::start(program, name, UNTIMED);
    for _ in 0..3 {
        let Ok(()) = interrupt(&waiting, name, None) else { unreachable!() };
    }
    waiting.release();
    let (outcome, _) = waiting.outcome();
    (outcome != expected).then(|| format!("{name}: {outcome:?}, alone {expected:?}"))
}

fn timed(program: &Path, name: &str) -> Option<String> {
    for time in TIMES {
        match timed_once(program, name, time) {
            Ok(wrong) => return wrong,
            Err(TooLate) => println!("{name}: {time:?} were too short for this machine now"),
        }
    }
    Some(format!("{name}: none of {TIMES:?} sufficed to interrupt it"))
}

fn timed_once(program: &Path, name: &str, time: Duration) -> Result<Option<String>, TooLate> {
    let noticed = NOTICED.contains(&name);
    let alone = (!noticed).then(|| Waiting::start(program, name, time));
    let waiting = Waiting::start(program, name, time);
    let over = waiting.since + time * 9 / 10;
    let mut last = waiting.since;
    for part in INTERRUPTED_AT {
        let at = waiting.since + time * part / 100;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        last = Instant::now();
        interrupt(&waiting, name, Some(over))?;
        if noticed {
            break;
        }
    }
    // The call itself began after `since` or little before.
    let anew = last - waiting.since + time;
    let (outcome, took) = waiting.outcome();
    let expected = match alone {
        Some(alone) => alone.outcome().0,
        None => Outcome { result: -1, errno: libc::EINTR },
    };
    // Clocks of the kernel's timers and ours may differ by a tick.
    let early = !noticed && took + Duration::from_millis(20) < time;
    if outcome != expected || early {
        return Ok(Some(format!("{name}: {outcome:?} after {took:?} of {time:?}, alone {expected:?}")));
    }
    // At least two seconds later than it should be: no thread is kept from a processor for that long.
    if !noticed && took >= anew {
        return Ok(Some(format!("{name}: {took:?} of {time:?}, as if it had begun anew")));
    }
    Ok(None)
}

#[test]
fn calls_return_what_they_would_have_when_they_would_have() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("injection/inject_calls/calls.c");
    let fixture = Fixture::compile(&source, &["-O1", "-pthread", "-lrt"]).unwrap();
    let list = Command::new(fixture.program()).output().unwrap().stdout;
    let list = String::from_utf8(list).unwrap();
    support::image();
    let lines: Vec<&str> = list.lines().collect();
    let wrong = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (name, kind) = line.split_once(' ').unwrap();
                    let program = fixture.program();
                    let found = if kind == "timed" { timed(program, name) } else { untimed(program, name) };
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(list.lines().count() >= 35, "{list}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
