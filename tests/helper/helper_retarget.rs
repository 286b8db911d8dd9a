//! New targets for a helper that is at work, given by the loader's own library: everything is judged anew,
//! live.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{os::fd::AsRawFd as _, path::PathBuf, sync::Arc, time::Duration};

use speed_bump_abi::control_block::{Clock, HelperCommand};
use speed_bump_linux::process::Process;
use speed_bump_session::{
    presence::{HelperSetup, Presence},
    probe::site::SiteKind,
    python::helper::{Heartbeat, HelperClock, InPlace, NewFunctions, Room},
    targets::{ParsedTargets, selector},
};
use speed_bump_testing::{PythonBuild, skip, wait::wait_until};
use speed_bump_tests::calls::start;
use speed_bump_tests::helper::{on_each, threads};
use speed_bump_units::units::Pid;

use crate::hits::Counters;

fn compiled(targets: &str) -> Vec<u8> {
    let targets = ParsedTargets::parse("test", targets.as_bytes(), false).unwrap();
    selector::compile(&targets.decide(|_| false)).unwrap()
}

/// Brings the helper in, as a session does. It stays as long as the heartbeat goes on.
fn bring_in(python: &PythonBuild, process: &Process, targets: &str) -> (Presence, Arc<Heartbeat>) {
    bring_in_to(None, python, process, targets)
}

/// The same of one that delays by itself, as this says.
fn bring_in_to(
    in_place: Option<InPlace>,
    python: &PythonBuild,
    process: &Process,
    targets: &str,
) -> (Presence, Arc<Heartbeat>) {
    let setup = HelperSetup {
        selector: compiled(targets).into(),
        stub: SiteKind::Nop,
        timeout: Duration::from_secs(10),
        heartbeat: Arc::new(Heartbeat::start().unwrap()),
        signals: Arc::default(),
        in_place,
    };
    let library = python.library.file_name().unwrap();
    let files = process.mappings().unwrap().files;
    let interpreters: Vec<_> = files
        .iter()
        .filter(|file| file.path_in_process.file_name() == Some(library))
        .map(|file| file.identity)
        .collect();
    let presence = setup
        .bring_in(process, &process.program().unwrap(), &interpreters, Room::NAMED, HelperCommand::Run)
        .unwrap();
    presence.wait_active(process, || false).unwrap();
    (presence, setup.heartbeat)
}

fn retarget(presence: &Presence, targets: &str) {
    let generation = presence.block.retarget(&compiled(targets)).unwrap();
    let is_applied = || Ok(presence.block.report()?.applied_generation == generation);
    wait_until("the new targets are applied", is_applied).unwrap();
}

#[test]
fn new_targets_apply_to_functions_that_run_and_to_those_that_come() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let process = Process::open(Pid::new(service.pid()).unwrap()).unwrap();
        let (presence, _heartbeat) = bring_in(python, &process, "*/calls.py:plain\n");
        let image = PathBuf::from(format!("/proc/self/fd/{}", presence.file.file().as_raw_fd()));
        let hits = Counters::at(&image, presence.offset.0);
        let mut called = |text: &str| {
            let before = hits.count();
            service.ask(text).unwrap();
            hits.count() - before
        };
        let calls = "times(10, plain, 1); times(7, other, 1); times(3, outer, 1)";
        let mut names = Vec::new();
        let mut new = NewFunctions::default();
        let mut take = |presence: &Presence| {
            let found = new.take(&presence.block).unwrap();
            names.extend(
                found.into_iter().filter(|found| found.file.ends_with("/calls.py")).map(|found| found.name),
            );
            names.sort_unstable();
            names.clone()
        };
        assert_eq!((called(calls), take(&presence)), (10, vec!["plain".to_owned()]), "{python}");
        // What was selected is no more, what was not is; then both, and nothing, and once more the first.
        let expected: [(&str, u64); 5] = [
            ("*/calls.py:other\n", 7),
            ("*/calls.py:plain\n*/calls.py:other\n", 17),
            ("*/calls.py:*\n!*:other\n!*:times\n!*:outer.*\n!*:say\n!*:serve*\n!*:<module>\n", 13),
            ("*:no_such_function_anywhere\n", 0),
            ("*/calls.py:plain\n", 10),
        ];
        for (targets, count) in expected {
            retarget(&presence, targets);
            assert_eq!(called(calls), count, "{python}: {targets}");
        }
        for name in ["other", "outer", "plain", "late"] {
            assert!(take(&presence).iter().any(|known| known == name), "{python}: {name}");
        }
        // Code that comes after all that is judged by the last targets.
        let defined =
            "exec(compile('def plain(x): pass\\ntimes(4, plain, 1)', '/x/calls.py', 'exec'), globals())";
        assert_eq!(called(defined), 4, "{python}");
        assert_eq!(presence.block.report().unwrap().notices, 0, "{python}");
        assert!(presence.leave_and_wait(&process, || false), "{python}");
        assert_eq!(called("times(10, plain, 1)"), 0, "{python}");
        wait_until("the helper's thread has ended", || Ok(threads(process.pid().get()) == 0)).unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// What it takes to time a call is part of a delay as long as calls are timed. Whatever else is at work on
/// this machine may make a call dearer for a moment, and cheaper never.
#[test]
fn what_a_call_takes_is_measured_again_when_timing_is_switched() {
    const TRIES: u32 = 20;
    // Any rate of the counter: what is measured is compared with itself.
    let clock = HelperClock::of_machine(500_000);
    if clock.kind() != Clock::Counter {
        return skip!("this machine's counter is not to be trusted, and nothing is measured by it");
    }
    on_each(|python| {
        let service = start(python, &[]);
        let process = Process::open(Pid::new(service.pid()).unwrap()).unwrap();
        let in_place =
            InPlace { clock, policies: 1, children: false, times: true, timing: 0, callers: false };
        let targets = "*/calls.py:plain\n";
        let (presence, _heartbeat) = bring_in_to(Some(in_place), python, &process, targets);
        let mut stretch = 0;
        let mut least = |timed: bool| {
            stretch += u32::from(timed);
            presence.block.set_timing(if timed { stretch } else { 0 }).unwrap();
            retarget(&presence, targets);
            presence.block.floor().unwrap().unwrap()
        };
        let mut measured = Vec::new();
        for _ in 0..TRIES {
            measured.push([least(true), least(false)]);
            let least = |at: usize| measured.iter().map(|pair| pair[at]).min();
            if measured.len() > 2 && least(0) > least(1) {
                break;
            }
        }
        let least = |at: usize| measured.iter().map(|pair| pair[at]).min();
        assert!(least(0) > least(1), "{python}: timed, and not timed: {measured:?}");
        assert!(presence.leave_and_wait(&process, || false), "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}
