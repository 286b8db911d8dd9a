//! The bound on what a session delays a thread: whatever the doses are, programs and helper keep to it.

#![allow(clippy::unwrap_used)]

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use speed_bump_session::{
    engine::{EngineChoice, EngineKind},
    policy::{DelayBound, Dose},
    prepare::{Prepared, Purpose, Request},
    session::{SessionError, handle::Handle, stop::Stop},
    stats::report::SessionReport,
    targets::source::TargetSource,
};
use speed_bump_testing::{
    Fixture, Service, pythons,
    session::{obstacle, obstacle_to_long_spins},
    skip,
    wait::PATIENCE,
};
use speed_bump_tests::{
    calls::{one_of_each_version, start},
    helper::one_by_one,
};
use speed_bump_units::units::{Nanos, Pid};

/// Small, so that a thread that is often kept from running in its delays comes up against it as well.
const SHARE: f64 = 0.05;
const WINDOW: Duration = Duration::from_millis(100);
/// Four times as much as the time of the threads, which call a function a thousand times a second.
const TOO_MUCH: Dose = Dose { delay: Nanos(4_000_000), frequency: 1 };
const FOR: Duration = Duration::from_secs(2);

/// A session whose doses ask for far too much.
struct Bounded {
    session: Handle,
    begun: Instant,
}

impl Bounded {
    fn start(pid: i32, target: &str, engine: EngineChoice) -> Self {
        let request = Request {
            default: TOO_MUCH,
            engine,
            bound: Some(DelayBound::new(SHARE, WINDOW).unwrap()),
            inject_timeout: PATIENCE,
            ..Request::new(TargetSource::lines("targets", &[target]))
        };
        let begun = Instant::now();
        let prepared = Prepared::of_processes(&[Pid::new(pid).unwrap()], &request, Purpose::Attach).unwrap();
        Self { session: prepared.start(Stop::default()).unwrap(), begun }
    }

    /// Asserts that these threads were delayed, and together not for more than each may be; and that all
    /// calls are accounted for, and the user hears of those that were left out. The report so far.
    #[track_caller]
    fn assert_kept(&self, threads: u32, what: &str) -> SessionReport {
        let report = self.session.report().unwrap();
        let wall = self.begun.elapsed();
        let target = &report.targets[0];
        let requested = Duration::from_nanos(target.functions.iter().map(|of| of.requested_ns.0).sum());
        let most = (wall + WINDOW).mul_f64(SHARE) * threads;
        assert!(requested <= most, "{what}: {requested:?} in {wall:?}, of {target:?}");
        assert!(target.delayed > 0 && target.bounded > 0, "{what}: {target:?}");
        assert_eq!(target.calls, target.delayed + target.bounded + target.missed, "{what}: {target:?}");
        let told = format!("{} of {} delays were left out", target.bounded, target.bounded + target.delayed);
        assert!(report.warnings.iter().any(|of| of.starts_with(&told)), "{what}: {:?}", report.warnings);
        report
    }
}

/// Calls a function in two threads, a thousand times a second in each where nothing holds them up.
const CALL: &str = concat!(
    r#"exec("import time\ndef call():\n    end = time.monotonic() + 2\n    while time.monotonic() < end:\n"#,
    r#"        plain(1)\n        time.sleep(0.001)\n"#,
    r#"threads = [threading.Thread(target=call) for _ in '12']\n[thread.start() for thread in threads]\n"#,
    r#"[thread.join() for thread in threads]", globals())"#,
);

#[test]
fn python_functions_are_delayed_for_a_share_of_the_time_whatever_is_asked() {
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = start(python, &[]);
        let bounded = Bounded::start(service.pid(), "*/calls.py:plain", EngineChoice::Auto);
        service.ask(CALL).unwrap();
        let report = bounded.assert_kept(2, &python.to_string());
        assert_eq!(report.targets[0].engine, EngineKind::Helper, "{python}");
        drop(bounded);
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn native_functions_are_delayed_for_a_share_of_the_time_whatever_is_asked() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    for engine in [EngineKind::Bpf, EngineKind::Signal] {
        let fixture = Fixture::service().unwrap();
        let mut service = Service::start(Command::new(fixture.program()).args(["2", "1000"])).unwrap();
        // No call comes before the session delays, and none is under way while they are counted.
        service.ask("pause").unwrap();
        let bounded = Bounded::start(service.pid(), "native:*/service:hot", EngineChoice::Only(engine));
        service.ask("resume").unwrap();
        thread::sleep(FOR);
        service.ask("pause").unwrap();
        let report = bounded.assert_kept(2, &engine.to_string());
        assert_eq!(report.targets[0].engine, engine);
        drop(bounded);
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn each_thread_has_a_bound_of_its_own() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let mut service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let bounded = Bounded::start(service.pid(), "native:*/service:hot", EngineChoice::Only(EngineKind::Bpf));
    // All at once: what one thread has left is nothing to another.
    service.ask("spread hot 50 16").unwrap();
    let report = bounded.assert_kept(16, "new threads");
    assert!(report.targets[0].delayed >= 16, "{:?}", report.targets[0]);
    drop(bounded);
    assert!(service.quit().unwrap().success());
}

#[test]
fn a_bound_changes_in_a_session_that_began_with_one() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let mut service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let pid = Pid::new(service.pid()).unwrap();
    let delayed = |session: &Handle, service: &mut Service| {
        service.ask("call hot 1").unwrap();
        session.report().unwrap().targets[0].delayed
    };
    let begin = |bound: Option<DelayBound>| {
        let dose = Dose { delay: Nanos(20_000), frequency: 1 };
        let targets = TargetSource::lines("targets", &["native:*/service:hot"]);
        let request = Request { default: dose, bound, ..Request::new(targets) };
        let prepared = Prepared::of_processes(&[pid], &request, Purpose::Attach).unwrap();
        prepared.start(Stop::default()).unwrap()
    };
    let [low, high] = [10, 1_000].map(|us| DelayBound::new(1.0, Duration::from_micros(us)).unwrap());
    let session = begin(Some(low));
    assert_eq!(delayed(&session, &mut service), 0, "longer than a window");
    session.controls().set_bound(high).unwrap();
    assert_eq!(delayed(&session, &mut service), 1);
    session.controls().set_bound(low).unwrap();
    assert_eq!(delayed(&session, &mut service), 1);
    drop(session);
    let session = begin(None);
    let error = session.controls().set_bound(low).unwrap_err();
    assert!(matches!(error, SessionError::Unbounded), "{error}");
    assert_eq!(delayed(&session, &mut service), 1, "without a bound");
    drop(session);
    assert!(service.quit().unwrap().success());
}
