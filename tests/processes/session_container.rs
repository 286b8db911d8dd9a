//! A target with PIDs and mounts of its own, attached to from outside and from inside.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use speed_bump_testing::{
    Attached, Fixture, Service,
    session::obstacle,
    skip, text, tool,
    tool::Running,
    wait::{PATIENCE, wait_until},
};

const HOT: &str = "native:*/service:hot\n";

/// Why there can be no container here, if so.
fn no_container() -> Option<String> {
    if let Some(why) = obstacle() {
        return Some(why.to_owned());
    }
    match Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("unshare: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Some(format!("no unshare (util-linux): {error}")),
    }
}

/// The service as the first process of a PID namespace, with the PID that it has outside.
fn start(fixture: &Fixture) -> (Service, i32) {
    let mut command = Command::new("unshare");
    // Killed with its parent, which is all that the test can kill.
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(fixture.program()).arg("0");
    let service = Service::start(&mut command).unwrap();
    assert_eq!(service.ready()["pid"], 1);
    let unshare = service.pid();
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    (service, children.trim().parse().unwrap())
}

/// Attaches from inside the namespaces of a process, to its PID 1.
fn attach_inside(fixture: &Fixture, outside: i32, flags: &[&str]) -> Running {
    let targets = fixture.folder().join("targets.txt");
    std::fs::write(&targets, HOT).unwrap();
    let mut command = Command::new("nsenter");
    command.args(["--target", &outside.to_string(), "--pid", "--mount", "--"]).arg(tool::path().unwrap());
    command.args(["--verbose", "--pid", "1", "--json", "-", "--targets"]).arg(targets).args(flags);
    let running = Running::start(&mut command).unwrap();
    running.wait_for_stderr("attached; ", PATIENCE).unwrap();
    running
}

#[test]
fn from_outside() {
    if let Some(why) = no_container() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let (mut service, pid) = start(&fixture);
    let session = Attached::start(pid, HOT, &["-vv"]).unwrap();
    service.ask("call hot 10").unwrap();
    service.ask("fork").unwrap();
    session.wait_for(" is covered").unwrap();
    service.ask("relay call hot 200").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (210, 210));
    assert_eq!(text::differences(pid, fixture.program()).unwrap(), [0_u64; 0]);
}

#[test]
fn from_inside_where_forks_and_execs_are_not_announced() {
    if let Some(why) = no_container() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let (mut service, outside) = start(&fixture);
    let mut loader = attach_inside(&fixture, outside, &["-vv"]);
    service.ask("call hot 10").unwrap();
    service.ask("fork-exec").unwrap();
    // Found by looking: it has been executed by then, or it is found again when it has.
    let child = std::fs::read_to_string(format!("/proc/{outside}/task/{outside}/children")).unwrap();
    let child: i32 = child.trim().parse().unwrap();
    wait_until("the child has a probe", || Ok(!text::differences(child, fixture.program())?.is_empty()))
        .unwrap();
    service.ask("relay call hot 200").unwrap();
    // nsenter waits for the loader, and passes no signal on.
    let nsenter = loader.pid();
    let inner = std::fs::read_to_string(format!("/proc/{nsenter}/task/{nsenter}/children")).unwrap();
    let inner = rustix::process::Pid::from_raw(inner.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(inner, Signal::INT).unwrap();
    let run = loader.finish(PATIENCE).unwrap();
    assert!(run.status.success(), "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["targets"][0]["calls"], 210, "{}", run.stderr);
    assert_eq!(report["pid"], 1);
    for pid in [outside, child] {
        assert_eq!(text::differences(pid, fixture.program()).unwrap(), [0_u64; 0]);
    }

    for flag in ["--children", "--no-children"] {
        loader = attach_inside(&fixture, outside, &[flag]);
        service.ask("exec").unwrap();
        let run = loader.finish(PATIENCE).unwrap();
        assert!(
            run.status.success() && run.stderr.contains("executed another program"),
            "{flag}: {}",
            run.stderr
        );
        assert_eq!(text::differences(outside, fixture.program()).unwrap(), [0_u64; 0], "{flag}");
        service.ask("call hot 1").unwrap();
    }
}
