//! Sessions beside each other do not affect each other.

#![allow(clippy::unwrap_used)]

use std::{process::Command, thread, time::Duration};

use rustix::process::Signal;
use speed_bump_testing::{
    Attached, Fixture, Service, places, pythons, pythons::Form, session::obstacle, skip, wait::wait_until,
};

/// By then no call is delayed any more.
const EXPIRED: Duration = Duration::from_millis(1_500);
/// What a trap after a sleep takes is subtracted, and differs by as much.
const COLD_US: u64 = 2;
const CALLS: u32 = 20;

/// The least time that one of some calls takes, in us.
fn least_us(service: &mut Service, function: &str) -> u64 {
    service.ask("reset").unwrap();
    service.ask(&format!("call {function} {CALLS}")).unwrap();
    service.function(function).unwrap().least_ns / 1_000
}

fn session(service: &Service, library: &str, function: &str, delay: &str) -> Attached {
    let target = format!("native:*/{library}:{function}\n");
    Attached::start(service.pid(), &target, &["--engine", "bpf", "--delay", delay]).unwrap()
}

#[test]
fn a_session_that_dies_or_stops_is_nothing_to_others_of_its_process() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let mut service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let dies = session(&service, "service", "hot", "400us");
    let stays = session(&service, "service", "cold", "500us");
    let mut stops = session(&service, "libwork.so", "work_cold", "600us");
    // Calls that are not interrupted take as long as the others' delays do not change.
    let is_delayed = |service: &mut Service, function: &str, delay: u64| {
        wait_until("a call takes no longer than its delay", || {
            let least = least_us(service, function);
            assert!(least + COLD_US >= delay, "{function}: {least} us");
            Ok(least < delay + delay / 10)
        })
        .unwrap();
    };
    is_delayed(&mut service, "hot", 400);
    is_delayed(&mut service, "cold", 500);
    is_delayed(&mut service, "work_cold", 600);

    dies.kill().unwrap();
    stops.signal(Signal::STOP).unwrap();
    thread::sleep(EXPIRED);
    assert!(least_us(&mut service, "hot") < 100);
    assert!(least_us(&mut service, "work_cold") < 100);
    is_delayed(&mut service, "cold", 500);

    stops.signal(Signal::CONT).unwrap();
    wait_until("calls are delayed again", || Ok(least_us(&mut service, "work_cold") >= 600 - COLD_US))
        .unwrap();
    is_delayed(&mut service, "cold", 500);
    stops.stop().unwrap();
    is_delayed(&mut service, "cold", 500);
    assert!(least_us(&mut service, "work_cold") < 100);
    let (calls, delayed) = stays.stop().unwrap().counts(0);
    // All of its own, from the first on.
    assert_eq!(calls, delayed);
    assert!(calls >= u64::from(4 * CALLS) && calls % u64::from(CALLS) == 0, "{calls}");
    assert!(least_us(&mut service, "cold") < 100);
    assert!(service.quit().unwrap().success());
}

#[test]
fn fifty_sessions_of_fifty_processes_count_and_delay_each_its_own() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = pythons().iter().rfind(|python| python.form == Form::Direct) else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let script = places::fixtures().join("service.py");
    let start = |_| Service::start(python.command(&script).arg("0")).unwrap();
    let mut services: Vec<Service> = (0..50).map(start).collect();
    let mut sessions: Vec<Attached> = thread::scope(|scope| {
        let attach = |service: &Service| {
            let pid = service.pid();
            scope.spawn(move || Attached::start(pid, "*/service.py:hot\n", &["--delay", "1ms"]).unwrap())
        };
        let started: Vec<_> = services.iter().map(attach).collect();
        started.into_iter().map(|of| of.join().unwrap()).collect()
    });
    for (calls, service) in (1..).zip(&mut services) {
        service.ask(&format!("call hot {calls}")).unwrap();
        let least = service.function("hot").unwrap().least_ns;
        let is_delayed = least >= 1_000_000;
        assert!(is_delayed, "{calls}: {least} ns: {:#?}", sessions.swap_remove(calls - 1).stop());
    }
    // One in five dies; what the others say is of their own.
    for (number, session) in (1_u64..).zip(sessions) {
        if number % 5 == 0 {
            session.kill().unwrap();
        } else {
            assert_eq!(session.stop().unwrap().counts(0), (number, number));
        }
    }
    thread::sleep(EXPIRED);
    for service in &mut services {
        service.ask("reset").unwrap();
        service.ask("call hot 20").unwrap();
        let least = service.function("hot").unwrap().least_ns;
        assert!(least < 500_000, "{least} ns");
    }
    for service in services {
        assert!(service.quit().unwrap().success());
    }
}
