//! Processes that the target forks: covered by default, and left alone on request.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use speed_bump_testing::{Attached, Fixture, Service, session::obstacle, skip, text, wait::wait_until};
use speed_bump_tests::{calls, helper};

const HOT: &str = "native:*/service:hot\n";

const UNTOUCHED: [u64; 0] = [];

/// Every way of the fixture to start a child.
const WAYS: [&str; 4] = ["fork", "fork-exec", "vfork-exec", "posix_spawn"];

fn start(fixture: &Fixture) -> Service {
    Service::start(Command::new(fixture.program()).arg("0")).unwrap()
}

/// Starts a child, or with `relay fork` a grandchild, and returns its PID.
fn child(service: &mut Service, command: &str) -> i32 {
    let answer = service.ask(command).unwrap();
    i32::try_from(answer[0]["pid"].as_i64().unwrap()).unwrap()
}

/// Waits until a child is covered. One that has executed a program has a probe in its code then, but also
/// when the loader hears of the fork after the exec; one that has only forked has its parent's from the
/// start. So the loader's log tells when they count.
fn wait_covered(session: &Attached, fixture: &Fixture, pid: i32, way: &str) {
    if way.ends_with("fork") {
        session.wait_for(&format!("child {pid} is covered")).unwrap();
    } else {
        let probed = || Ok(!text::differences(pid, fixture.program())?.is_empty());
        wait_until(&format!("child {pid} has a probe"), probed).unwrap();
        session.wait_for(&format!("child {pid} is covered anew")).unwrap();
    }
}

#[test]
fn children_are_covered_however_they_start() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for way in WAYS {
        let fixture = Fixture::service().unwrap();
        let mut service = start(&fixture);
        let session = Attached::start(service.pid(), HOT, &["-vv"]).unwrap();
        let pid = child(&mut service, way);
        wait_covered(&session, &fixture, pid, way);
        service.ask("relay call hot 100").unwrap();
        service.ask("relay spread hot 10 4").unwrap();
        service.ask("call hot 3").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (143, 143), "{way}: {}", ended.run.stderr);
        assert_eq!(ended.report["processes"], 2, "{way}");
        assert_eq!(text::differences(pid, fixture.program()).unwrap(), UNTOUCHED, "{way}");
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn grandchildren_are_covered() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for (way, next) in WAYS.into_iter().zip(["posix_spawn", "fork", "fork-exec", "vfork-exec"]) {
        let fixture = Fixture::service().unwrap();
        let mut service = start(&fixture);
        let session = Attached::start(service.pid(), HOT, &["-vv", "--children"]).unwrap();
        let pid = child(&mut service, way);
        wait_covered(&session, &fixture, pid, way);
        let pid = child(&mut service, &format!("relay {next}"));
        wait_covered(&session, &fixture, pid, next);
        service.ask("relay relay call hot 1000").unwrap();
        service.ask("relay call hot 200").unwrap();
        service.ask("call hot 30").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (1230, 1230), "{way}, {next}: {}", ended.run.stderr);
        assert_eq!(text::differences(pid, fixture.program()).unwrap(), UNTOUCHED, "{way}, {next}");
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn children_are_left_alone_on_request() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for way in WAYS {
        let fixture = Fixture::service().unwrap();
        let mut service = start(&fixture);
        let session = Attached::start(service.pid(), HOT, &["--no-children"]).unwrap();
        let pid = child(&mut service, way);
        service.ask("relay call hot 100").unwrap();
        // What a fork copied of its parent stays until the session ends; an image of its own has no probes.
        if way != "fork" {
            assert_eq!(text::differences(pid, fixture.program()).unwrap(), UNTOUCHED, "{way}");
        }
        service.ask("call hot 3").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (3, 3), "{way}: {}", ended.run.stderr);
        assert_eq!(ended.report["processes"], 1);
        assert_eq!(text::differences(pid, fixture.program()).unwrap(), UNTOUCHED, "{way}");
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn children_that_were_there_before_are_covered_too() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for (flag, calls) in [("--children", 100), ("--no-children", 0)] {
        let fixture = Fixture::service().unwrap();
        let mut service = start(&fixture);
        let pid = child(&mut service, "fork");
        child(&mut service, "relay vfork-exec");
        let session = Attached::start(service.pid(), HOT, &[flag]).unwrap();
        service.ask("relay call hot 90").unwrap();
        service.ask("relay relay call hot 10").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (calls, calls), "{flag}");
        assert_eq!(ended.report["processes"], if calls > 0 { 3 } else { 1 }, "{flag}");
        assert_eq!(text::differences(pid, fixture.program()).unwrap(), UNTOUCHED);
    }
}

#[test]
fn a_child_that_executes_what_a_target_selects_is_covered() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    // A shell that on a first command becomes the parent of the service, which reads the commands from then
    // on.
    let script = r#"echo '{"event":"ready"}'; read go; echo '{"event":"done"}'; "$0" 0; exit"#;
    let mut shell = Service::start(Command::new("sh").args(["-c", script]).arg(fixture.program())).unwrap();
    // The shell has no such function: nothing is selected before its child executes.
    let session = Attached::start(shell.pid(), HOT, &["-vv"]).unwrap();
    shell.ask("go").unwrap();
    let ready = shell.ask("call hot 0").unwrap();
    let pid = i32::try_from(ready[0]["pid"].as_i64().unwrap()).unwrap();
    wait_covered(&session, &fixture, pid, "fork-exec");
    shell.ask("call hot 500").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (500, 500), "{}", ended.run.stderr);
    assert_eq!(ended.functions(0), ["hot"]);
}

/// A child that was forked in an earlier session maps its parent's helper, and gets a block of its own in the
/// next one.
#[test]
fn children_of_an_earlier_session_are_counted_and_delayed_once() {
    helper::on_each(|python| {
        for engine in ["bpf", "signal", "helper"] {
            let mut service = calls::start(python, &[]);
            let mut session = |asked: &str| {
                let flags = ["--engine", engine, "--delay", "1us"];
                let session = helper::attach(&service, "*calls.py:plain\n", &flags);
                service.ask(asked).unwrap();
                session.stop().unwrap()
            };
            session("child(Forked)");
            for _ in 0..2 {
                let ended = session("times(30, plain, 1); CHILD.ask('times(5, plain, 1)')");
                assert_eq!(ended.counts(0), (35, 35), "{python}, {engine}: {}", ended.run.stderr);
            }
            assert!(service.quit().unwrap().success(), "{python}");
        }
    });
}
