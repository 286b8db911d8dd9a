//! Processes whose functions are too many, or called by names that no target has: a sweep takes little
//! memory, ends on a signal, and says what it left out.

#![allow(clippy::unwrap_used)]

use std::{process::Command, time::Duration};

use rustix::process::Signal;
use speed_bump_testing::{Fixture, Service, session::obstacle, skip, tool, tool::Running, wait::PATIENCE};

use crate::hostile_memory::tool::Tool;

/// What a sweep has in memory that ranks nothing, in MiB: its own code and tables, and 32 MiB of names.
const MAX_MIB: i64 = 192;

/// Five processes of 200 threads, with stacks of 256 functions that are others at each look.
fn functions() -> Option<(Fixture, Service)> {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return None;
    }
    let source = include_str!("hostile_sampling/functions.c");
    let fixture = Fixture::compile_text(source, &["-O1", "-rdynamic", "-pthread"]).unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("5")).unwrap();
    Some((fixture, service))
}

const SWEEP: [&str; 5] = ["sweep", "--for", "60s", "--progress", "native:*:pause"];

#[test]
fn a_sweep_of_too_many_functions_takes_little_memory_and_ranks_nothing() {
    let Some((_fixture, service)) = functions() else { return };
    let ended = Tool::on(&SWEEP, service.pid()).finish();
    assert!(ended.peak_mib < MAX_MIB, "{} MiB: {}", ended.peak_mib, ended.said());
    assert!(!ended.status.success(), "{}", ended.said());
    for text in ["could not be attributed", "functions beyond the first 65,536"] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.said());
    }
}

#[test]
fn a_signal_ends_a_sweep_that_looks_at_too_many_functions() {
    let Some((_fixture, service)) = functions() else { return };
    let mut command = Command::new(tool::path().unwrap());
    let mut sweep = Running::start(command.args(SWEEP).args(["--pid", &service.pid().to_string()])).unwrap();
    sweep.wait_for_stderr("sample: sampling stacks", PATIENCE).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    sweep.signal(Signal::INT).unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    assert!(run.stderr.contains("stopped before anything was measured"), "{}", run.stderr);
}
