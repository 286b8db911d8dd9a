//! Which processes a session touches: only the one that was named, and its code only while attached.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use speed_bump_testing::{Attached, Fixture, Service, session::obstacle, skip, text, wait::wait_until};

const TARGETS: &str = "native:*/service:hot\nnative:*/libwork.so:work_*\nusdt:*:service:*\n";

const UNTOUCHED: [Vec<u64>; 2] = [Vec::new(), Vec::new()];

fn start(fixture: &Fixture, threads: u32) -> Service {
    Service::start(Command::new(fixture.program()).arg(threads.to_string())).unwrap()
}

/// Offsets at which the service's code and its library's differ from their files.
fn differences(fixture: &Fixture, service: &Service) -> [Vec<u64>; 2] {
    [fixture.program(), &fixture.library()].map(|file| text::differences(service.pid(), file).unwrap())
}

#[test]
fn other_processes_of_the_same_files_never_trap() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let (mut target, mut before) = (start(&fixture, 0), start(&fixture, 2));
    let session = Attached::start(target.pid(), TARGETS, &[]).unwrap();
    let mut later = start(&fixture, 2);
    let [program, library] = differences(&fixture, &target);
    assert!(!program.is_empty() && !library.is_empty(), "{program:?} {library:?}");
    for other in [&mut before, &mut later] {
        other.ask("call hot 1000").unwrap();
        other.ask("call work_cold 1000").unwrap();
        other.ask("call probed 1000").unwrap();
        assert_eq!(differences(&fixture, other), UNTOUCHED);
    }
    target.ask("call hot 3").unwrap();
    target.ask("call work_cold 4").unwrap();
    target.ask("call probed 5").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!([0, 1, 2].map(|position| ended.counts(position).0), [3, 4, 5]);
    for service in [&target, &before, &later] {
        assert_eq!(differences(&fixture, service), UNTOUCHED);
    }
}

#[test]
fn two_processes_named_are_covered_and_a_third_is_not() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let [mut first, mut second, mut third] = [0; 3].map(|threads| start(&fixture, threads));
    let pid = second.pid().to_string();
    let session = Attached::start(first.pid(), "native:*/service:hot\n", &["--pid", &pid]).unwrap();
    for (service, calls) in [(&mut first, 10), (&mut second, 200), (&mut third, 3000)] {
        service.ask(&format!("call hot {calls}")).unwrap();
    }
    assert_eq!(differences(&fixture, &third), UNTOUCHED);
    // One of them ends; the session goes on with the other.
    assert!(first.quit().unwrap().success());
    second.ask("call hot 1").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (211, 211));
    assert_eq!(ended.report["processes"], 2);
    assert!(ended.run.stderr.contains("stopped by SIGINT"), "{}", ended.run.stderr);
    assert_eq!(differences(&fixture, &second), UNTOUCHED);
}

#[test]
fn sessions_on_the_same_functions_leave_each_other_alone() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let mut service = start(&fixture, 0);
    let first = Attached::start(service.pid(), TARGETS, &["--frequency", "2"]).unwrap();
    service.ask("call hot 10").unwrap();
    let second = Attached::start(service.pid(), TARGETS, &["--frequency", "5"]).unwrap();
    service.ask("call hot 10").unwrap();
    assert!(second.has_said(&format!("session {} is attached to it too", first.pid())));
    assert_eq!(first.stop().unwrap().counts(0), (20, 10));
    assert_ne!(differences(&fixture, &service), UNTOUCHED);
    service.ask("call hot 10").unwrap();
    assert_eq!(second.stop().unwrap().counts(0), (20, 4));
    assert_eq!(differences(&fixture, &service), UNTOUCHED);
}

#[test]
fn listing_touches_nothing() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let service = start(&fixture, 1);
    let targets = fixture.folder().join("targets.txt");
    std::fs::write(&targets, TARGETS).unwrap();
    let mut command = Command::new(speed_bump_testing::tool::path().unwrap());
    command.args(["list", "--pid", &service.pid().to_string(), "--targets"]).arg(&targets);
    let mut list = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_until("the list", || {
        let ended = list.try_wait()?;
        assert_eq!(differences(&fixture, &service), UNTOUCHED);
        Ok(ended.is_some())
    })
    .unwrap();
    assert!(list.wait().unwrap().success());
}
