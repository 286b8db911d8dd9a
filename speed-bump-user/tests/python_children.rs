//! Children of a Python process: their calls count too.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "python/calls.rs"]
mod calls;

use calls::{start, start_with, with_trampolines, with_usdt};
use speed_bump_testing::{Attached, PythonBuild, Service, pythons::Form, session::obstacle, skip};

/// The children that the fixture can start. `spawn` and a program run the interpreter anew.
const CHILDREN: [(&str, bool); 4] = [
    ("Forked", false),
    ("Worker, 'fork'", false),
    ("Worker, 'spawn'", true),
    ("Program, PYTHONPERFSUPPORT='1'", true),
];

/// Starts a child, has its functions called, and counts them.
fn count_in_child(python: &PythonBuild, service: &mut Service, how: &str, flags: &[&str]) -> (u64, u64) {
    let session = Attached::start(service.pid(), "*calls.py:plain\n", flags).unwrap();
    let child = service.ask(&format!("child({how})")).unwrap()[0]["pid"].clone();
    // Each call may be the first that is visible.
    service.ask("CHILD.ask('plain(1)')").unwrap();
    session.wait_for("plain is covered").unwrap_or_else(|error| panic!("{python}: {how} {child}: {error}"));
    service.ask("CHILD.ask('times(200, plain, 1)')").unwrap();
    let ended = session.stop().unwrap();
    assert!(ended.report["processes"].as_u64() >= Some(2), "{python}: {how}: {}", ended.report);
    ended.counts(0)
}

#[test]
fn children_with_trampolines_are_covered() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if with_trampolines().next().is_none() {
        return skip!("no Python has perf trampolines here: run `cargo xtask pythons`");
    }
    for python in with_trampolines() {
        for (how, anew) in CHILDREN {
            if anew && python.form == Form::Loader {
                continue; // sys.executable is the dynamic loader's business there
            }
            // Worker processes inherit the environment, not -X perf.
            let mut service = start_with(python, &[], &[("PYTHONPERFSUPPORT", "1")]);
            let (calls, delayed) = count_in_child(python, &mut service, how, &["-vv"]);
            assert!((200..=201).contains(&calls) && delayed == calls, "{python}: {how}: {calls}, {delayed}");
        }
    }
}

#[test]
fn children_with_the_probe_are_covered() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if with_usdt().next().is_none() {
        return skip!("no Python has a function__entry that fires: run `cargo xtask pythons`");
    }
    for python in with_usdt() {
        for (how, anew) in CHILDREN {
            if anew && python.form == Form::Loader {
                continue;
            }
            let mut service = start(python, &[]);
            let (calls, delayed) = count_in_child(python, &mut service, how, &["-vv"]);
            assert_eq!((calls, delayed), (201, 200), "{python}: {how}");
        }
    }
}
