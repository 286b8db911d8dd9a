//! Calls in sub-interpreters, with one GIL for all and with a GIL for each.

#![allow(clippy::unwrap_used)]

use speed_bump_testing::{Attached, PythonBuild, Service, exact::exact, session::Ended};
use speed_bump_tests::calls::start;
use speed_bump_tests::helper::{attach, on_each};

/// Wherever `there` is defined: text that is run in an interpreter has a name that versions differ in.
const THERE: &str = "*:there\n";

/// A program with two interpreters: one has a GIL of its own, from 3.12 on.
fn with_interpreters(python: &PythonBuild) -> Service {
    let mut service = start(python, &[]);
    service.ask("from subs import *; OWN = begin(); SHARED = begin(own=False)").unwrap();
    service
}

/// A session, unless this Python's sub-interpreters are not covered, which has to be said then.
fn attached(python: &PythonBuild, service: &Service, targets: &str, flags: &[&str]) -> Option<Attached> {
    let session = attach(service, targets, &[&["--engine", "helper"], flags].concat());
    if !python.free_threaded {
        return Some(session);
    }
    let ended = session.stop().unwrap();
    assert!(says_not_covered(&ended), "{python}: {:?}", ended.report["warnings"]);
    None
}

fn says_not_covered(ended: &Ended) -> bool {
    ended.report["warnings"].to_string().contains("sub-interpreters whose functions are not covered")
}

#[test]
fn calls_in_them_are_counted_exactly() {
    on_each(|python| {
        let mut service = with_interpreters(python);
        let targets = "*:there\n*calls.py:plain frequency=3 delay=1us\n";
        let Some(session) = attached(python, &service, targets, &["--delay", "0"]) else { return };
        service.ask("inside(OWN, 'for _ in range(1000): there(1)')").unwrap();
        service.ask("inside(SHARED, 'for _ in range(500): there(1)')").unwrap();
        service.ask("NEW = begin(); inside(NEW, 'for _ in range(100): there(1)'); end(NEW)").unwrap();
        let calls = "'for _ in range(20000): there(1)'";
        service.ask(&format!("together(3, {calls}, lambda: times(30000, plain, 1))")).unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (61_600, 0), "{python}: {}", ended.run.stderr);
        assert_eq!(ended.counts(1), (30_000, 10_000), "{python}: {}", ended.run.stderr);
        assert!(!says_not_covered(&ended), "{python}");

        // Functions of modules that are frozen into Python.
        let session = attach(&service, "*:commonprefix\n", &["--delay", "0"]);
        let calls = "'import genericpath\\nfor _ in range(300): genericpath.commonprefix([])'";
        service.ask(&format!("inside(OWN, {calls}); inside(SHARED, {calls})")).unwrap();
        assert_eq!(session.stop().unwrap().counts(0), (600, 0), "{python}");

        // Again, after calls in only one of them.
        service.ask("inside(OWN, 'there(1)')").unwrap();
        let session = attach(&service, THERE, &["--delay", "0"]);
        service.ask("inside(OWN, 'there(1); outer(1)'); inside(SHARED, 'there(1); outer(1)')").unwrap();
        assert_eq!(session.stop().unwrap().counts(0), (6, 0), "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// The module that begins it is imported right before: until then none is likely to.
#[test]
fn the_first_one_may_begin_in_a_session() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, THERE, &["--engine", "helper", "--delay", "0"]);
        service
            .ask("from subs import *; NEW = begin(); inside(NEW, 'for _ in range(1000): there(1)')")
            .unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(says_not_covered(&ended), python.free_threaded, "{python}: {}", ended.report["warnings"]);
        let expected = if python.free_threaded { 0 } else { 1000 };
        assert_eq!(ended.counts(0), (expected, 0), "{python}: {}", ended.run.stderr);
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn they_are_left_as_they_were() {
    on_each(|python| {
        let mut service = with_interpreters(python);
        let seen = "say(event='tools', seen=[value(OWN, 'tools()'), value(SHARED, 'tools()')])";
        let before = service.ask(seen).unwrap();
        let Some(session) = attached(python, &service, THERE, &["--delay", "0"]) else { return };
        let during = service.ask(seen).unwrap();
        if python.minor() >= (3, 12) {
            assert!(during[0].to_string().matches("speed-bump").count() == 2, "{python}: {during:?}");
        }
        session.stop().unwrap();
        // Each is left with its next call of a Python function.
        service.ask("inside(OWN, 'there(1)'); inside(SHARED, 'there(1)')").unwrap();
        assert_eq!(service.ask(seen).unwrap(), before, "{python}");
        service.ask("end(OWN); end(SHARED)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// As in exact.rs: a delay that is too short shows where it is shorter by more than the function's own work.
#[test]
fn delays_there_are_exact() {
    on_each(|python| {
        let mut service = with_interpreters(python);
        let Some(session) = attached(python, &service, "*:worked\n", &["--delay", "1ms"]) else { return };
        for interpreter in ["OWN", "SHARED"] {
            let least =
                service.ask(&format!("say(event='least', ns=int(value({interpreter}, 'least(50)')))"));
            let least = least.unwrap()[0]["ns"].as_u64().unwrap();
            exact(&format!("{python}, {interpreter}"), 1_000_000, least);
        }
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (100, 100), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn turns_are_taken_over_all_that_run_at_the_same_time() {
    on_each(|python| {
        let mut service = with_interpreters(python);
        let Some(session) = attached(python, &service, "*:there delay=1us frequency=7\n", &[]) else {
            return;
        };
        service.ask("together(3, 'for _ in range(7000): there(1)', lambda: None)").unwrap();
        assert_eq!(session.stop().unwrap().counts(0), (21_000, 3_000), "{python}");
    });
}

#[test]
fn they_are_timed_beside_each_other() {
    on_each(|python| {
        let mut service = with_interpreters(python);
        let flags = ["--delay", "0", "--times", "--callers"];
        let targets = "*:there\n*:outer\n*:numbers\n*calls.py:plain\n";
        for round in 0..3 {
            let Some(session) = attached(python, &service, targets, &flags) else { return };
            let calls = "'for _ in range(500): outer(1); list(numbers(4))'";
            let here = format!("inside(OWN, {calls}); together(2, {calls}, lambda: times(5000, plain, 1))");
            service.ask(&here).unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(ended.counts(0), (9_000, 0), "{python}, {round}: {}", ended.run.stderr);
            assert_eq!(ended.counts(1), (1_500, 0), "{python}, {round}");
            assert_eq!(ended.counts(2), (1_500, 0), "{python}, {round}");
            assert_eq!(ended.counts(3), (5_000, 0), "{python}, {round}");
            let outer = &ended.target(1)["functions"][0];
            let [own, cumulative] = ["own_ns", "cumulative_ns"].map(|time| outer[time].as_u64().unwrap());
            assert!(0 < own && own < cumulative, "{python}, {round}: {outer}");
        }
        assert!(service.quit().unwrap().success(), "{python}");
    });
}
