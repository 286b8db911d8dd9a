//! Targets that come and go while a session runs: by the targets file and SIGUSR1, and by `set`.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use speed_bump_testing::{
    Attached, Fixture, PythonBuild, Service, case_ran, places, pythons, session::obstacle, side_by_side,
    skip, tool, tool::Run, wait::PATIENCE,
};

fn set(session: &Attached, arguments: &[&str]) -> Run {
    let pid = session.pid().to_string();
    tool::run(&[&["set", "--session", &pid], arguments].concat(), PATIENCE).unwrap()
}

/// What it prints, which has to succeed.
fn said(run: &Run) -> &str {
    assert!(run.status.success(), "{}", run.stderr);
    &run.stdout
}

fn start() -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    (fixture, service)
}

fn call(service: &mut Service, functions: &[&str]) {
    for function in functions {
        service.ask(&format!("call {function} 10")).unwrap();
    }
}

fn requested(target: &Value) -> &Value {
    &target["functions"][0]["requested_ns"]
}

#[test]
fn a_session_follows_its_targets_file() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start();
    let targets = "native:*/service:hot\nnative:*/libwork.so:work_hot\n!native:*:nothing\n";
    let mut session = Attached::start(service.pid(), targets, &["--delay", "20us"]).unwrap();
    call(&mut service, &["hot", "work_hot", "work_leaf"]);

    let targets = "native:*/libwork.so:work_leaf delay=5us\nnative:*/service:hot delay=15us\n";
    session.write_targets(targets).unwrap();
    session.signal(Signal::USR1).unwrap();
    session.wait_for("lines that exclude functions cannot change").unwrap();
    call(&mut service, &["hot", "work_hot", "work_leaf"]);

    session.write_targets(&format!("{targets}!native:*:nothing\n")).unwrap();
    session.signal(Signal::USR1).unwrap();
    session.wait_for("1 target added, 1 dropped, 1 with a new dose").unwrap();
    call(&mut service, &["hot", "work_hot", "work_leaf"]);

    session.write_targets("native:*/service:hot delay=tomorrow\n").unwrap();
    session.signal(Signal::USR1).unwrap();
    session.wait_for("the targets stay as they were: ").unwrap();
    call(&mut service, &["hot", "work_hot", "work_leaf"]);

    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (40, 40));
    assert_eq!(requested(ended.target(0)), &json!(20 * 20_000 + 20 * 15_000));
    // Its probe is gone: what it counted before stays.
    assert_eq!(ended.counts(1), (20, 20));
    assert_eq!(requested(ended.target(1)), &json!(20 * 20_000));
    assert_eq!(ended.target(2)["id"], "native:*/libwork.so:work_leaf");
    assert_eq!(ended.counts(2), (20, 20));
    assert_eq!(requested(ended.target(2)), &json!(20 * 5_000));
}

#[test]
fn targets_are_added_and_dropped_by_hand() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start();
    let session = Attached::start(service.pid(), "native:*/service:hot\n", &["--delay", "20us"]).unwrap();
    for (arguments, words) in [
        (&["*/service.py:handle", "--add"][..], "the session began without any"),
        (&["native:*/service:cold", "--drop"], "no target of the session matches"),
        (&["native:*/service:cold", "delay=1us"], "`--add` adds it as a target"),
        (&["native:*/service:cold"], "required"),
        (&["native:*/service:cold", "delay=1us", "--drop"], "cannot be used with"),
    ] {
        let run = set(&session, arguments);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {}", run.stdout);
        assert!(run.stderr.contains(words), "{arguments:?}: {}", run.stderr);
    }
    let run = set(&session, &["native:*/libwork.so:work_*", "delay=7us", "--add"]);
    assert!(said(&run).contains("delay 7us for "), "{}", run.stdout);
    let run = set(&session, &["native:*/service:hot", "--drop"]);
    assert!(said(&run).contains("dropped 1 target with 1 function"), "{}", run.stdout);
    call(&mut service, &["hot", "work_hot"]);
    // One of them gets a dose of its own, and is dropped with its target.
    said(&set(&session, &["native:*:work_leaf", "delay=3us"]));
    call(&mut service, &["work_leaf"]);
    let listed = tool::run(&["sessions", "--json"], PATIENCE).unwrap();
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    let ours = listed.iter().find(|listed| listed["session"] == session.pid()).unwrap();
    let patterns: Vec<&Value> = ours["targets"].as_array().unwrap().iter().map(|of| &of["pattern"]).collect();
    assert_eq!(patterns, [&json!("native:*/libwork.so:work_*")]);
    said(&set(&session, &["native:*/libwork.so:work_*", "--drop"]));
    said(&set(&session, &["native:*/service:hot", "--add"]));
    call(&mut service, &["hot", "work_hot", "work_leaf"]);

    let ended = session.stop().unwrap();
    assert_eq!([0, 1, 2].map(|target| ended.counts(target)), [(0, 0), (20, 20), (10, 10)]);
    assert_eq!(ended.target(2)["id"], "native:*/service:hot (2)");
    assert_eq!(requested(ended.target(2)), &json!(10 * 20_000));
    assert_eq!(ended.report["warnings"], json!([]));
}

#[test]
fn the_helper_takes_up_other_python_targets() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let pythons: Vec<&PythonBuild> = pythons().iter().collect();
    if pythons.is_empty() {
        return skip!("this machine has no Python 3.8 or newer");
    }
    side_by_side::on_each(&pythons, |python| {
        let mut service =
            Service::start(python.command(&places::fixtures().join("service.py")).arg("0")).unwrap();
        let flags = ["--delay", "20us", "--entry", "helper", "-vv"];
        let session = Attached::start(service.pid(), "*/service.py:hot\n", &flags).unwrap();
        call(&mut service, &["hot", "cold"]);
        said(&set(&session, &["*/service.py:cold", "delay=7us", "--add"]));
        session.wait_for(": cold is covered").unwrap();
        said(&set(&session, &["*/service.py:hot", "--drop"]));
        call(&mut service, &["hot", "cold"]);
        let ended = session.stop().unwrap();
        assert_eq!(ended.target(0)["delayed"], 10, "{}", ended.run.stderr);
        assert_eq!(ended.counts(1), (10, 10), "{}", ended.run.stderr);
        assert_eq!(requested(ended.target(1)), &json!(10 * 7_000));
        case_ran!();
    });
}
