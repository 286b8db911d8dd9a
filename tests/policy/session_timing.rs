//! Timing of calls that is switched on and off while a session goes on.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use speed_bump_session::{
    policy::{Dose, Selection},
    prepare::{Prepared, Purpose, Request},
    session::{SessionError, handle::Handle, stop::Stop},
    targets::{TargetIndex, source::TargetSource},
};
use speed_bump_testing::{
    Fixture, PythonBuild, Service,
    exact::exact,
    places,
    session::{obstacle, obstacle_to_long_spins},
    skip,
    wait::{PATIENCE, wait_until},
};
use speed_bump_tests::{calls::start, helper::on_each};
use speed_bump_units::units::{Nanos, Pid};

/// What each call takes at least, in ns.
const TAKES: u64 = 2_000_000;
/// Defines a function that takes so long, and one that takes 2 us.
const DEFINE: &str = concat!(
    r#"import time; exec(compile('def slow():\n    end = time.perf_counter() + 0.002\n    while "#,
    r#"time.perf_counter() < end: pass\ndef quick():\n    end = time.perf_counter_ns() + 2000\n    while "#,
    r#"time.perf_counter_ns() < end: pass', '/x/calls.py', 'exec'), globals())"#,
);
/// A child that calls it three times when a byte comes, and tells when it has.
const FORK: &str = concat!(
    r#"exec("r, w = os.pipe()\nr2, w2 = os.pipe()\npid = os.fork()\nif pid == 0:\n    os.read(r, 1)\n    "#,
    r#"times(3, slow)\n    os.write(w2, b'x')\n    os.read(r, 1)\n    os._exit(0)", globals())"#,
);
const CHILD_CALLS: &str = "os.write(w, b'x'); os.read(r2, 1)";
const CHILD_ENDS: &str = "os.write(w, b'x'); os.waitpid(pid, 0); [os.close(fd) for fd in (r, w, r2, w2)]";

/// A session without delays, in which calls are not timed yet.
fn session(pid: i32, targets: &[&str]) -> Handle {
    let request = Request {
        times_later: true,
        inject_timeout: PATIENCE,
        ..Request::new(TargetSource::lines("targets", targets))
    };
    let prepared = Prepared::of_processes(&[Pid::new(pid).unwrap()], &request, Purpose::Attach).unwrap();
    prepared.start(Stop::default()).unwrap()
}

/// Calls of a function, and its own time, in ns.
fn counted(session: &Handle, name: &str) -> (u64, Option<u64>) {
    let snapshot = session.snapshot().unwrap();
    let found = snapshot.known.iter().find(|(_, function)| function.name == name);
    let Some((id, _)) = found else { return (0, None) };
    (snapshot.of_id(id).calls, snapshot.times_of(id).map(|times| times.own_ns))
}

#[track_caller]
fn assert_timed(own: u64, calls: u64, what: &str) {
    assert!(own >= calls * TAKES, "{what}: {own} ns of {calls} calls");
}

#[test]
fn python_functions_are_timed_for_parts_of_a_session() {
    on_each(|python| {
        let mut service = start(python, &[]);
        service.ask(DEFINE).unwrap();
        let session = session(service.pid(), &["*/calls.py:slow"]);
        let mut calls = 0;
        let mut call = |service: &mut Service, count: u64| {
            service.ask(&format!("times({count}, slow)")).unwrap();
            calls += count;
            let (counted, own) = counted(&session, "slow");
            assert_eq!(counted, calls, "{python}");
            own
        };
        assert_eq!(call(&mut service, 3), None, "{python}: not timed yet");
        session.controls().time_calls(true).unwrap();
        let first = call(&mut service, 3).unwrap();
        assert_timed(first, 3, &format!("{python}: on"));
        session.controls().time_calls(false).unwrap();
        assert_eq!(call(&mut service, 3), Some(first), "{python}: off");
        session.controls().time_calls(true).unwrap();
        let second = call(&mut service, 3).unwrap();
        assert_timed(second - first, 3, &format!("{python}: on again"));
        let report = session.report().unwrap();
        assert_eq!(report.warnings, [""; 0], "{python}");
        drop(session);
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// A child inherits the helper without its thread.
#[test]
fn forked_children_take_up_that_calls_are_timed_and_that_they_are_not() {
    on_each(|python| {
        let mut service = start(python, &[]);
        service.ask(DEFINE).unwrap();
        let session = session(service.pid(), &["*/calls.py:slow"]);
        let mut calls = 0;
        let mut forked = |service: &mut Service, timed: bool| {
            service.ask(FORK).unwrap();
            session.controls().time_calls(timed).unwrap();
            let before = counted(&session, "slow").1.unwrap_or(0);
            service.ask(CHILD_CALLS).unwrap();
            calls += 3;
            wait_until("all calls are counted", || Ok(counted(&session, "slow").0 == calls)).unwrap();
            let after = counted(&session, "slow").1.unwrap_or(0);
            service.ask(CHILD_ENDS).unwrap();
            after - before
        };
        assert_timed(forked(&mut service, true), 3, &format!("{python}: forked before"));
        assert_eq!(forked(&mut service, false), 0, "{python}: forked while calls were timed");
        assert_timed(forked(&mut service, true), 3, &format!("{python}: forked before, again"));
        drop(session);
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// What it takes to time a call is part of a delay; and where it is not timed any more, not.
#[test]
fn delays_are_exact_after_timing_was_switched() {
    const DELAY: u64 = 40_000;
    const MEASURE: &str = concat!(
        r#"exec("def measure():\n    least = 10**9\n    for _ in range(3000):\n        before = "#,
        r#"time.perf_counter_ns()\n        quick()\n        least = min(least, time.perf_counter_ns() - "#,
        r#"before)\n    say(least=least)\nmeasure()", globals())"#,
    );
    fn least(service: &mut Service) -> u64 {
        service.ask(MEASURE).unwrap()[0]["least"].as_u64().unwrap()
    }
    on_each(|python: &PythonBuild| {
        let mut service = start(python, &[]);
        service.ask(DEFINE).unwrap();
        let session = session(service.pid(), &["*/calls.py:quick"]);
        let dose = Dose { delay: Nanos(DELAY), frequency: 1 };
        session.set(&[(Selection::Target(TargetIndex(0)), dose)]).unwrap();
        for (stage, timed) in [("not yet", false), ("timed", true), ("not any more", false)] {
            session.controls().time_calls(timed).unwrap();
            exact(&format!("{python}, {stage}"), DELAY, least(&mut service));
        }
        drop(session);
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn native_functions_are_timed_for_a_part_of_a_session() {
    let why_not = obstacle()
        .or_else(|| obstacle_to_long_spins().map(|_| "before Linux 5.17 native functions are not timed"));
    if let Some(why) = why_not {
        return skip!("{why}");
    }
    let source = places::fixtures().join("timed.c");
    let fixture = Fixture::compile(&source, &["-O1", "-pthread"]).unwrap();
    let mut service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let session = session(service.pid(), &["native:*/program:leaf"]);
    let mut calls = 0;
    let mut call = |service: &mut Service| {
        service.ask(&format!("call leaf 1 {TAKES}")).unwrap();
        calls += 1;
        let (counted, own) = counted(&session, "leaf");
        assert_eq!(counted, calls);
        own
    };
    assert_eq!(call(&mut service), None, "not timed yet");
    session.controls().time_calls(true).unwrap();
    // Timed as well as calls are that are timed from the start, whose traps are subtracted as measured.
    let timed = call(&mut service).unwrap();
    assert!(timed >= TAKES - TAKES / 10, "{timed}");
    session.controls().time_calls(false).unwrap();
    assert_eq!(call(&mut service), Some(timed), "off");
    let refused = session.controls().time_calls(true).unwrap_err();
    assert!(matches!(refused, SessionError::Retarget(_)), "{refused}");
    assert!(refused.to_string().contains("begin another"), "{refused}");
    assert_eq!(call(&mut service), Some(timed), "still off");
    drop(session);
    assert!(service.quit().unwrap().success());
}

#[test]
fn a_session_without_room_for_times_refuses_them() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let request = Request::new(TargetSource::lines("targets", &["native:*/service:hot"]));
    let pid = Pid::new(service.pid()).unwrap();
    let prepared = Prepared::of_processes(&[pid], &request, Purpose::Attach).unwrap();
    let session = prepared.start(Stop::default()).unwrap();
    let refused = session.controls().time_calls(true).unwrap_err();
    assert!(refused.to_string().contains("without room for the times"), "{refused}");
    session.controls().time_calls(false).unwrap();
}
