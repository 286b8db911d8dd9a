//! Every way out of a session leaves the target as it was, running on.

#![allow(clippy::unwrap_used)]

use std::{process::Command, thread};

use rustix::process::Signal;
use speed_bump_testing::{
    Attached, Fixture, Service,
    session::{Ended, obstacle},
    skip, text,
    wait::wait_until,
};

const TARGETS: &str = "native:*/service:hot\nnative:*/libwork.so:work_*\nusdt:*:service:*\n";

fn start(threads: u32) -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg(threads.to_string())).unwrap();
    (fixture, service)
}

fn probed(fixture: &Fixture, service: &Service) -> anyhow::Result<bool> {
    Ok(!text::differences(service.pid(), fixture.program())?.is_empty()
        || !text::differences(service.pid(), &fixture.library())?.is_empty())
}

/// Attaches while the workers pause, and has them go on: what they count of `hot` from now on, the session
/// counts.
fn attach_in_a_pause(service: &mut Service, flags: &[&str]) -> Attached {
    service.ask("pause").unwrap();
    let session = Attached::start(service.pid(), TARGETS, flags).unwrap();
    service.ask("reset").unwrap();
    service.ask("resume").unwrap();
    session
}

/// Waits for calls of `hot` by the workers; how many there were at least by now.
fn calls_of_hot(service: &mut Service) -> u64 {
    let mut calls = 0;
    wait_until("the workers call", || {
        calls = service.function("hot")?.calls;
        Ok(calls >= 100)
    })
    .unwrap();
    calls
}

fn said(ended: &Ended, text: &str) {
    assert!(ended.run.stderr.contains(text), "{}", ended.run.stderr);
}

#[test]
fn signals_end_the_session_with_a_report() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start(2);
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")] {
        let mut session = attach_in_a_pause(&mut service, &[]);
        assert!(probed(&fixture, &service).unwrap());
        let least = calls_of_hot(&mut service);
        session.signal(signal).unwrap();
        let ended = session.finish().unwrap();
        assert!(!probed(&fixture, &service).unwrap(), "{name}");
        let (calls, most) = (ended.counts(0).0, service.function("hot").unwrap().calls);
        assert!((least..=most).contains(&calls), "{name}: {calls} of {least} to {most}");
        said(&ended, &format!("stopped by {name}"));
        service.ask("call hot 10").unwrap();
    }
    assert!(service.quit().unwrap().success());
}

#[test]
fn the_end_of_the_window_ends_the_session() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start(2);
    let ended = Attached::start(service.pid(), TARGETS, &["--duration", "100ms"]).unwrap().finish().unwrap();
    assert!(!probed(&fixture, &service).unwrap());
    said(&ended, "the window closed");
    assert!(service.quit().unwrap().success());
}

#[test]
fn the_end_of_the_target_ends_the_session() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(2);
    let session = attach_in_a_pause(&mut service, &[]);
    calls_of_hot(&mut service);
    service.ask("pause").unwrap();
    let calls = service.function("hot").unwrap().calls;
    assert!(service.quit().unwrap().success());
    let ended = session.finish().unwrap();
    said(&ended, "the target ended");
    assert_eq!(ended.counts(0), (calls, calls));

    let (_fixture, service) = start(2);
    let session = Attached::start(service.pid(), TARGETS, &[]).unwrap();
    drop(service); // by SIGKILL
    said(&session.finish().unwrap(), "the target ended");
}

#[test]
fn the_exec_of_the_target_ends_the_session() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for flag in ["--children", "--no-children"] {
        let (fixture, mut service) = start(2);
        let session = attach_in_a_pause(&mut service, &[flag]);
        let least = calls_of_hot(&mut service);
        service.ask("exec").unwrap();
        let ended = session.finish().unwrap();
        // The workers went on until the exec, and what they counted went with them.
        assert!(ended.counts(0).0 >= least, "{flag}: {:?}, {least} at least", ended.counts(0));
        said(&ended, "the target executed another program");
        assert!(!probed(&fixture, &service).unwrap(), "{flag}");
        service.ask("call hot 10").unwrap();
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn the_process_runs_on_when_the_loader_is_killed() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start(8);
    for flags in [&[][..], &["--delay", "1ms"]] {
        let session = Attached::start(service.pid(), TARGETS, flags).unwrap();
        assert!(probed(&fixture, &service).unwrap());
        session.kill().unwrap();
        wait_until("the code is as in the files", || Ok(!probed(&fixture, &service)?)).unwrap();
    }
    let before = service.function("cold").unwrap().calls;
    wait_until("the workers work", || Ok(service.function("cold")?.calls > before)).unwrap();
    // All workers are there and answer.
    service.ask("pause").unwrap();
    service.ask("resume").unwrap();
    assert!(service.quit().unwrap().success());
}

/// Clock ticks that a process spent in the kernel.
fn system_time(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Field 15, counted from behind the name, which may contain anything: proc_pid_stat(5).
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(12).unwrap().parse().unwrap()
}

#[test]
fn a_long_spin_in_flight_does_not_hold_up_detaching() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for signal in [Some(Signal::INT), None] {
        let (fixture, mut service) = start(0);
        let flags: &[&str] =
            if signal.is_some() { &["--delay", "10s"] } else { &["--delay", "10s", "--duration", "1s"] };
        let mut session = Attached::start(service.pid(), TARGETS, flags).unwrap();
        let pid = service.pid();
        let idle = system_time(pid);
        thread::scope(|scope| {
            // Together they would last longer than anyone here waits.
            let calls = scope.spawn(|| service.ask("call hot 100"));
            wait_until("a call spins in the kernel", || Ok(system_time(pid) > idle + 3)).unwrap();
            if let Some(signal) = signal {
                session.signal(signal).unwrap();
            }
            let ended = session.finish().unwrap();
            let (seen, delayed) = ended.counts(0);
            // The one in flight was delayed; what came between the stop and the last link was counted.
            assert!(delayed >= 1 && seen < 101, "{delayed} of {seen}");
            calls.join().unwrap().unwrap();
        });
        assert!(!probed(&fixture, &service).unwrap());
        assert_eq!(service.function("hot").unwrap().calls, 100);
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn a_process_that_is_stopped_can_be_attached_to_and_left() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start(2);
    let pid = rustix::process::Pid::from_raw(service.pid()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let session = Attached::start(service.pid(), TARGETS, &[]).unwrap();
    assert!(probed(&fixture, &service).unwrap());
    session.stop().unwrap();
    assert!(!probed(&fixture, &service).unwrap());
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    service.ask("call hot 1").unwrap();
    assert!(service.quit().unwrap().success());
}
