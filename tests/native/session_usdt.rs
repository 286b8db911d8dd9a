//! USDT probes: every location counts, and the semaphore is up while someone listens and never after.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use rustix::process::Signal;
use speed_bump_testing::{
    Attached, Fixture, Service, case_ran,
    exact::{self, Subject},
    session::{obstacle, obstacle_to_long_spins},
    skip, skip_case,
    wait::wait_until,
};

fn start(threads: u32) -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg(threads.to_string())).unwrap();
    (fixture, service)
}

/// The semaphore's value in the service and in each of its children.
fn semaphores(service: &mut Service) -> Vec<u64> {
    let report = service.ask("report").unwrap();
    let semaphores = report.iter().filter(|event| event["event"] == "semaphore");
    semaphores.map(|event| event["value"].as_u64().unwrap()).collect()
}

#[test]
fn all_locations_of_a_probe_count_while_attached_and_only_then() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let targets = "usdt:*/service:service:tick\nusdt:*/service:*:to?k\n";
    service.ask("call probed 5").unwrap();
    let session = Attached::start(service.pid(), targets, &[]).unwrap();
    service.ask("call probed 10").unwrap();
    service.ask("call probed_too 100").unwrap();
    service.ask("call probed_always 1000").unwrap();
    assert!(semaphores(&mut service)[0] > 0);
    let ended = session.stop().unwrap();
    service.ask("call probed 5").unwrap();
    assert_eq!([ended.counts(0), ended.counts(1)], [(110, 110), (1000, 1000)]);
    assert_eq!([ended.functions(0), ended.functions(1)], [["service:tick"], ["service:tock"]]);
    assert_eq!(ended.target(0)["entry"], "usdt");
    assert_eq!(semaphores(&mut service), [0]);
}

#[test]
fn delays_are_exact() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = exact::start().unwrap();
    let attach = |service: &mut Service, delay: &str| {
        let flags = ["--engine", "bpf", "--delay", delay];
        Attached::start(service.pid(), "usdt:*/program:exact:point\n", &flags)
    };
    let mut subject = Subject { service: &mut service, function: "probed", attach };
    subject.short().unwrap().assert_exact("a short delay");
    case_ran!();
    match obstacle_to_long_spins() {
        Some(why) => skip_case!("a long delay", "{why}"),
        None => subject.long(1_000_000).unwrap().assert_exact("a long delay"),
    }
    assert!(service.quit().unwrap().success());
}

#[test]
fn frequency_counts_over_the_locations() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let session = Attached::start(service.pid(), "usdt:*:service:* frequency=10\n", &[]).unwrap();
    service.ask("spread probed 100 8").unwrap();
    service.ask("spread probed_too 100 8").unwrap();
    service.ask("call probed_always 5").unwrap();
    assert_eq!(session.stop().unwrap().counts(0), (1605, 160));
}

#[test]
fn two_sessions_share_a_semaphore() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let first = Attached::start(service.pid(), "usdt:*:service:tick\n", &[]).unwrap();
    let second = Attached::start(service.pid(), "usdt:*:service:tick\n", &["--delay", "0"]).unwrap();
    service.ask("call probed 3").unwrap();
    assert_eq!(first.stop().unwrap().counts(0), (3, 3));
    assert!(semaphores(&mut service)[0] > 0, "the second session still listens");
    service.ask("call probed 4").unwrap();
    assert_eq!(second.stop().unwrap().counts(0), (7, 0));
    assert_eq!(semaphores(&mut service), [0]);
}

#[test]
fn the_semaphore_is_down_after_every_way_of_leaving() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(2);
    let targets = "usdt:*:service:*\n";
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut session = Attached::start(service.pid(), targets, &[]).unwrap();
        assert!(semaphores(&mut service)[0] > 0);
        session.signal(signal).unwrap();
        session.finish().unwrap();
        assert_eq!(semaphores(&mut service), [0], "{signal:?}");
    }
    let session = Attached::start(service.pid(), targets, &["--duration", "50ms"]).unwrap();
    session.finish().unwrap();
    assert_eq!(semaphores(&mut service), [0], "end of the window");

    let session = Attached::start(service.pid(), targets, &[]).unwrap();
    assert!(semaphores(&mut service)[0] > 0);
    session.kill().unwrap();
    wait_until("the semaphore is down", || Ok(semaphores(&mut service) == [0])).unwrap();
    assert!(service.quit().unwrap().success());
}

#[test]
fn the_semaphore_is_down_in_children_too() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for flags in [["--children"], ["--no-children"]] {
        let (_fixture, mut service) = start(1);
        let session = Attached::start(service.pid(), "usdt:*:service:tick\n", &flags).unwrap();
        for how in ["fork", "fork-exec", "vfork-exec", "posix_spawn"] {
            service.ask(how).unwrap();
        }
        session.stop().unwrap();
        assert_eq!(semaphores(&mut service), [0; 5], "{flags:?}");
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn another_process_of_the_same_program_does_not_listen() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start(0);
    let mut other = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let session = Attached::start(service.pid(), "usdt:*:service:tick\n", &[]).unwrap();
    let mut later = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    for process in [&mut other, &mut later] {
        process.ask("call probed 50").unwrap();
        assert_eq!(semaphores(process), [0]);
    }
    service.ask("call probed 1").unwrap();
    assert_eq!(session.stop().unwrap().counts(0), (1, 1));
}
