//! Measures how long a session takes to answer its handle, idle and while helpers come and go: `cargo xtask
//! bench handle`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    fmt::Write as _,
    process::Command,
    time::{Duration, Instant},
};

use speed_bump_session::{
    policy::{Dose, Selection},
    prepare::{Prepared, Purpose, Request},
    session::{events::Event, handle::Handle, stop::Stop},
    targets::{TargetIndex, source::TargetSource},
};
use speed_bump_testing::{Fixture, Service, pythons, pythons::Form};
use speed_bump_units::units::{Nanos, Pid};

const FUNCTIONS: usize = 10_000;
const CHANGED: usize = 1_000;
const ROUNDS: usize = 500;
/// How long helpers come and go.
const BUSY: Duration = Duration::from_secs(20);

/// Starts Pythons that call something, one after the other, for ever.
const PARENT: &str = "\
import subprocess, sys
print('{\"event\":\"ready\"}', flush=True)
worker = 'import time\\ndef work(): pass\\nfor _ in range(20): work(); time.sleep(0.01)\\n'
while 1:
    for child in [subprocess.Popen([sys.executable, '-c', worker]) for _ in range(2)]: child.wait()
";

fn main() {
    let fixture = Fixture::compile_text(&source(), &["-O1"]).unwrap();
    let native = Service::start(&mut Command::new(fixture.program())).unwrap();
    let Some(python) = pythons().iter().find(|python| python.form != Form::Loader) else {
        return println!("skipped, because this machine has no Python 3.8 or newer");
    };
    let script = fixture.folder().join("parent.py");
    std::fs::write(&script, PARENT).unwrap();
    println!("{FUNCTIONS} native functions; medians and maxima of {ROUNDS} requests");
    println!("not queued: the maximum without the time that the asking thread waited for a processor\n");
    println!("{:<44} {:>12} {:>12} {:>12} {:>12}", "", "median", "maximum", "not queued", "wanted");

    let targets = ["native:*:function_*", "py:*:work"];
    let session = attach(&[native.pid()], &targets);
    rows(&session, "");
    drop(session);

    let parent = Service::start(&mut python.command(&script)).unwrap();
    let session = attach(&[native.pid(), parent.pid()], &targets);
    session.controls().events(Duration::ZERO);
    let began = Instant::now();
    let (mut sets, mut snapshots, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    let changes = changes(&session, CHANGED);
    while began.elapsed() < BUSY {
        sets.push(timed(|| set(&session, &changes(3))));
        snapshots.push(timed(|| drop(session.snapshot().unwrap())));
        reports.push(timed(|| drop(session.report().unwrap())));
        std::thread::sleep(Duration::from_millis(3));
    }
    let events = session.controls().events(Duration::ZERO).events;
    let came = events.iter().filter(|event| matches!(event.event, Event::Covered { .. })).count();
    println!("\nwhile {came} processes came and went, with their helpers, in {BUSY:?}");
    row(&format!("set of {CHANGED} functions"), sets, "< 10 ms");
    row(&format!("snapshot of {FUNCTIONS} functions"), snapshots, "< 10 ms");
    row("report, from the session's own thread", reports, "");
}

fn attach(pids: &[i32], targets: &[&str]) -> Handle {
    let request = Request::new(TargetSource::lines("bench", targets));
    let pids: Vec<Pid> = pids.iter().map(|pid| Pid::new(*pid).unwrap()).collect();
    Prepared::of_processes(&pids, &request, Purpose::Attach).unwrap().start(Stop::default()).unwrap()
}

fn rows(session: &Handle, of: &str) {
    let all = changes(session, CHANGED);
    let target = |us: u64| [(Selection::Target(TargetIndex(0)), dose(us))];
    let rounds =
        |request: &dyn Fn(u64)| (0..ROUNDS as u64).map(|round| timed(|| request(round % 3))).collect();
    row(&format!("set of a target{of}"), rounds(&|us| set(session, &target(us))), "");
    row(&format!("set of {CHANGED} functions{of}"), rounds(&|us| set(session, &all(us))), "< 2 ms");
    row(
        &format!("snapshot of {FUNCTIONS} functions{of}"),
        rounds(&|_| drop(session.snapshot().unwrap())),
        "< 5 ms",
    );
    row("report, from the session's own thread", rounds(&|_| drop(session.report().unwrap())), "");
}

fn set(session: &Handle, changes: &[(Selection, Dose)]) {
    session.set(changes).unwrap();
}

/// Doses for the first functions that are known.
fn changes(session: &Handle, count: usize) -> impl Fn(u64) -> Vec<(Selection, Dose)> + use<> {
    let known = session.controls().known();
    let functions: Vec<_> = known.iter().take(count).map(|(_, function)| function.clone()).collect();
    move |us| functions.iter().map(|function| (Selection::Function(function.clone()), dose(us))).collect()
}

fn dose(us: u64) -> Dose {
    Dose { delay: Nanos(1_000 * us), frequency: 1 }
}

/// How long a request took.
struct Took {
    all: Duration,
    /// Of it, how long the thread that asked could run and waited for a processor.
    queued: Duration,
}

fn timed(request: impl FnOnce()) -> Took {
    let (before, began) = (queued(), Instant::now());
    request();
    let all = began.elapsed();
    Took { all, queued: queued().saturating_sub(before) }
}

/// How long this thread has waited for a processor (Documentation/scheduler/sched-stats.rst).
fn queued() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').nth(1).unwrap().parse().unwrap())
}

fn row(what: &str, times: Vec<Took>, wanted: &str) {
    let mut all: Vec<Duration> = times.iter().map(|took| took.all).collect();
    all.sort_unstable();
    let (median, most) = (all[all.len() / 2], all[all.len() - 1]);
    let own = times.iter().map(|took| took.all.saturating_sub(took.queued)).max().unwrap_or_default();
    let ms = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1_000.0);
    println!("{what:<44} {:>12} {:>12} {:>12} {wanted:>12}", ms(median), ms(most), ms(own));
}

/// A program with this many functions, which waits for the end of its input.
fn source() -> String {
    let mut text = String::from("#include <stdio.h>\n#include <unistd.h>\n");
    for number in 0..FUNCTIONS {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "__attribute__((noinline)) int function_{number:05}(int x) {{ return x * {number} + 1; }}"
        );
    }
    text.push_str("int (*volatile kept[])(int) = {\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "function_{number:05},");
    }
    text.push_str("};\nint main(void)\n{\n\tchar byte;\n\tputs(\"{\\\"event\\\":\\\"ready\\\"}\");\n");
    text.push_str("\tfflush(stdout);\n\twhile (read(0, &byte, 1) == 1)\n\t\tkept[0](1);\n\treturn 0;\n}\n");
    text
}
