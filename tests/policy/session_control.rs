//! Sessions that are listed, and changed by `set` while they go on.

#![allow(clippy::unwrap_used)]

use std::{
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use speed_bump_testing::{
    Attached, Fixture, Service,
    session::{obstacle, obstacle_to_frequency},
    skip, tool,
    tool::Run,
    wait::PATIENCE,
};

const TARGETS: &str = "native:*/service:hot\nnative:*/libwork.so:work_* frequency=2\n";

fn tool(arguments: &[&str]) -> Run {
    tool::run(arguments, PATIENCE).unwrap()
}

/// Changes doses in a session, which it has to accept.
fn set(session: i32, arguments: &[&str]) -> String {
    let run = tool(&[&["set", "--session", &session.to_string()], arguments].concat());
    assert!(run.status.success(), "{arguments:?}: {}", run.stderr);
    run.stdout
}

fn socket(session: i32) -> PathBuf {
    format!("/run/speed-bump-ebpf/sessions/{session}.sock").into()
}

fn attach() -> (Fixture, Service, Attached) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let session = Attached::start(service.pid(), TARGETS, &["--delay", "0"]).unwrap();
    (fixture, service, session)
}

#[test]
fn doses_change_without_attaching_anew() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let (_fixture, mut service, session) = attach();
    service.ask("call hot 10").unwrap();
    let said = set(session.pid(), &["native:*/service:hot", "delay=20us"]);
    assert!(said.contains("delay 20us for 1 function, and those that become known later"), "{said}");
    service.ask("call hot 10").unwrap();
    set(session.pid(), &["native:*/service:hot", "delay=30us", "frequency=5"]);
    service.ask("call hot 10").unwrap();
    // One of the functions of the other target, which keeps that target's frequency.
    let said = set(session.pid(), &["native:*:work_hot", "delay=7us"]);
    assert!(said.contains("delay 7us for 1 function\n"), "{said}");
    service.ask("call work_hot 10").unwrap();
    service.ask("call work_leaf 10").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (30, 12));
    assert_eq!(ended.target(0)["functions"][0]["requested_ns"], 10 * 20_000 + 2 * 30_000);
    let function = |name: &str| {
        let functions = ended.target(1)["functions"].as_array().unwrap();
        functions.iter().find(|function| function["name"] == name).unwrap()["requested_ns"].clone()
    };
    assert_eq!((function("work_hot"), function("work_leaf")), (json!(5 * 7_000), json!(0)));
}

#[test]
fn what_runs_is_listed_as_long_as_it_runs() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let (_fixture, service, session) = attach();
    let pid = session.pid();
    let listed = || -> Option<Value> {
        let run = tool(&["sessions", "--json"]);
        let list: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
        list.into_iter().find(|listed| listed["session"] == pid)
    };
    let about = listed().unwrap();
    assert_eq!(about["pids"][0], service.pid());
    assert_eq!(about["targets"][1]["frequency"], 2);
    assert!(tool(&["sessions"]).stdout.contains(&format!("session {pid}: process {}", service.pid())));
    session.stop().unwrap();
    assert!(listed().is_none() && !socket(pid).exists());

    // A session that was killed leaves a socket, which goes when somebody looks: maybe another test has.
    let session = Attached::start(service.pid(), TARGETS, &[]).unwrap();
    let pid = session.pid();
    session.kill().unwrap();
    let run = tool(&["set", "--session", &pid.to_string(), "native:*/service:hot", "delay=1us"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(run.stderr.contains(&format!("no session runs as process {pid}")), "{}", run.stderr);
    assert!(!socket(pid).exists());
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let (_fixture, mut service, session) = attach();
    for (arguments, word) in [
        (vec!["native:*/service:hot", "delay=20"], "write 20us"),
        (vec!["native:*/service:hot", "delay=1h"], "1h"),
        (vec!["native:*/service:hot", "id=x"], "delay=TIME, frequency=N or caller=FUNCTION"),
        (vec!["native:*/service:hot", "caller=cold", "delay=1us"], "no target of the session matches"),
        (vec!["native:*:cold", "delay=1us"], "`--add` adds it as a target"),
        (vec!["!native:*:hot", "delay=1us"], "an exclusion has no options"),
        (vec!["nonsense", "delay=1us"], "nonsense"),
    ] {
        let session = session.pid().to_string();
        let run = tool(&[&["set", "--session", &session], arguments.as_slice()].concat());
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {}", run.stdout);
        assert!(run.stderr.contains(word), "{arguments:?}: {}", run.stderr);
    }
    service.ask("call hot 10").unwrap();
    assert_eq!(session.stop().unwrap().counts(0), (10, 0));
}

#[test]
fn other_users_change_nothing() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let (_fixture, _service, session) = attach();
    let nobody = 65_534;
    let connect =
        format!("import socket; socket.socket(socket.AF_UNIX).connect({:?})", socket(session.pid()));
    let status =
        |uid| Command::new("/usr/bin/python3").args(["-c", &connect]).uid(uid).stderr(Stdio::null()).status();
    let Ok(own) = status(0) else { return skip!("there is no python3 to connect with") };
    assert!(own.success());
    assert!(!status(nobody).unwrap().success());
    session.stop().unwrap();
}
