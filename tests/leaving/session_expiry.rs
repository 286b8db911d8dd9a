//! Delays end by themselves when the loader no longer works, for any reason.

#![allow(clippy::unwrap_used)]

use std::{process::Command, thread, time::Duration};

use rustix::process::Signal;
use speed_bump_testing::{
    Attached, Fixture, Service, case_ran,
    session::{obstacle, obstacle_to_long_spins},
    skip, skip_case,
    wait::wait_until,
};

const HOT: &str = "native:*/service:hot\n";
/// A call that takes longer was delayed by its 2 ms: undelayed it takes some microseconds.
const DELAYED_NS: u64 = 1_000_000;
/// By then no call is delayed any more.
const EXPIRED: Duration = Duration::from_millis(1_500);
const ENGINES: [&str; 2] = ["bpf", "signal"];

fn start() -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    (fixture, service)
}

/// The least time that one of so many calls takes, in ns.
fn least_ns(service: &mut Service, calls: u32) -> u64 {
    service.ask("reset").unwrap();
    service.ask(&format!("call hot {calls}")).unwrap();
    service.function("hot").unwrap().least_ns
}

fn attach(service: &Service, engine: &str) -> Attached {
    Attached::start(service.pid(), HOT, &["--engine", engine, "--delay", "2ms"]).unwrap()
}

/// Why an engine cannot spin two milliseconds here, where that is so.
fn obstacle_of(engine: &str) -> Option<&'static str> {
    if engine == "bpf" { obstacle_to_long_spins() } else { None }
}

/// Runs a test with each engine that can spin two milliseconds here, on a service of its own.
fn on_each_engine(test: impl Fn(&str, Service)) {
    for engine in ENGINES {
        if let Some(why) = obstacle_of(engine) {
            skip_case!(engine, "{why}");
            continue;
        }
        case_ran!();
        let (_fixture, service) = start();
        test(engine, service);
    }
}

#[test]
fn nothing_is_delayed_any_more_when_the_loader_was_stopped() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    on_each_engine(|engine, mut service| {
        let mut session = attach(&service, engine);
        let least = least_ns(&mut service, 10);
        assert!(least >= DELAYED_NS, "{engine}: a call took {least} ns\n{}", session.stderr());
        session.signal(Signal::STOP).unwrap();
        thread::sleep(EXPIRED);
        assert!(least_ns(&mut service, 10) < DELAYED_NS, "{engine}");
        session.signal(Signal::CONT).unwrap();
        if engine == "bpf" {
            wait_until("calls are delayed again", || Ok(least_ns(&mut service, 1) >= DELAYED_NS)).unwrap();
        }
        let ended = session.stop().unwrap();
        let (calls, delayed) = ended.counts(0);
        assert!(delayed >= 10 && delayed + 10 <= calls, "{engine}: {delayed} of {calls}");
        assert_eq!(ended.target(0)["missed"], 0, "{engine}");
        assert!(service.quit().unwrap().success(), "{engine}");
    });
}

#[test]
fn a_spin_in_flight_ends_when_the_loader_was_stopped() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start();
    let mut session = Attached::start(service.pid(), HOT, &["--engine", "bpf", "--delay", "10s"]).unwrap();
    // On a slow machine the call may come when the delay is over already.
    let is_in_flight = (0..10).any(|_| {
        session.signal(Signal::STOP).unwrap();
        let is_delayed = least_ns(&mut service, 1) >= DELAYED_NS;
        session.signal(Signal::CONT).unwrap();
        if !is_delayed {
            thread::sleep(EXPIRED);
        }
        is_delayed
    });
    assert!(is_in_flight, "no call was delayed");
    let ended = session.stop().unwrap();
    let function = &ended.target(0)["functions"][0];
    let times = ["requested_ns", "delivered_ns"].map(|name| function[name].as_u64().unwrap());
    assert_eq!(times[0], 10_000_000_000);
    assert!(times[1] < times[0], "{times:?}");
    assert!(service.quit().unwrap().success());
}

/// Stops or kills the loader at many moments of its life. More by hand: SPEED_BUMP_STOPS=200.
#[test]
fn whenever_the_loader_stops_or_dies_nothing_is_delayed_soon_after() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let rounds = std::env::var("SPEED_BUMP_STOPS").ok().and_then(|count| count.parse().ok()).unwrap_or(2_u64);
    on_each_engine(|engine, mut service| {
        for round in 0..rounds {
            let signal = if round % 2 == 0 { Signal::STOP } else { Signal::KILL };
            let mut session = attach(&service, engine);
            // All over the time between two renewals, and some of them.
            thread::sleep(Duration::from_micros(round * 61_803 % 300_000));
            session.signal(signal).unwrap();
            thread::sleep(EXPIRED);
            assert!(least_ns(&mut service, 10) < DELAYED_NS, "{engine} {round}");
            // Also where it was stopped it has to be gone before the next one comes.
            session.kill().unwrap();
            least_ns(&mut service, 10);
        }
        assert!(service.quit().unwrap().success(), "{engine}");
    });
}
