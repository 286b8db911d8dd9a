//! Children of a Python process: their calls count too.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{
    Attached, PythonBuild, Service, pythons::Form, session::obstacle, skip, wait::wait_until,
};
use speed_bump_tests::calls::{start, start_with, with_trampolines, with_usdt};

/// The children that the fixture can start. The last two run the interpreter anew.
const CHILDREN: [&str; 4] = ["Forked", "Worker, 'fork'", "Worker, 'spawn'", "Program, PYTHONPERFSUPPORT='1'"];

/// What runs through a dynamic loader of its own cannot run itself anew; the same build in a container can.
fn can_run_itself(python: &&PythonBuild) -> bool {
    python.form != Form::Loader
}

/// Starts a child, has its functions called, and checks that they are counted.
fn check_child(python: &PythonBuild, service: &mut Service, how: &str) {
    let session = Attached::start(service.pid(), "*calls.py:plain\n", &["--no-inject", "-vv"]).unwrap();
    service.ask(&format!("child({how})")).unwrap();
    let mut before = 0;
    wait_until("the child's function is covered", || {
        service.ask("CHILD.ask('plain(1)')")?;
        before += 1;
        Ok(session.has_said("plain is covered"))
    })
    .unwrap_or_else(|error| panic!("{python}: {how}: {error}"));
    service.ask("CHILD.ask('times(200, plain, 1)')").unwrap();
    let ended = session.stop().unwrap();
    let (calls, delayed) = ended.counts(0);
    assert!(
        (200..=calls).contains(&delayed) && calls <= 200 + before,
        "{python}: {how}: {calls} calls, {delayed} delayed, after {before}"
    );
    assert!(ended.report["processes"].as_u64() >= Some(2), "{python}: {how}: {}", ended.report);
}

#[test]
fn children_with_trampolines_are_covered() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if with_trampolines().find(can_run_itself).is_none() {
        return skip!("no Python has perf trampolines here: run `cargo xtask pythons`");
    }
    for python in with_trampolines().filter(can_run_itself) {
        for how in CHILDREN {
            // Worker processes inherit the environment, not -X perf.
            let mut service = start_with(python, &[], &[("PYTHONPERFSUPPORT", "1")]);
            check_child(python, &mut service, how);
        }
    }
}

#[test]
fn children_with_the_probe_are_covered() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if with_usdt().find(can_run_itself).is_none() {
        return skip!("no Python has a function__entry that fires: run `cargo xtask pythons`");
    }
    for python in with_usdt().filter(can_run_itself) {
        for how in CHILDREN {
            let mut service = start(python, &[]);
            check_child(python, &mut service, how);
        }
    }
}
