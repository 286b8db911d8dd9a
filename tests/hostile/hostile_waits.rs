//! Memory and files that never answer: a signal ends the tool all the same.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command, thread, time::Duration};

use rustix::process::Signal;
use speed_bump_testing::{
    Fixture, Service, everybody,
    session::obstacle,
    skip,
    tool::{self, Run, Running},
    wait::{PATIENCE, wait_until},
};

/// Starts the tool, and sends it this when it waits for an answer: one signal, not two.
fn stopped_as_it_waits(arguments: &[&str], signal: Signal) -> Run {
    let mut tool = Running::start(Command::new(tool::path().unwrap()).args(arguments)).unwrap();
    let call = format!("/proc/{}/syscall", tool.pid());
    let number = format!("{} ", libc::SYS_process_vm_readv);
    wait_until("it waits for memory", || {
        let is_waiting = || fs::read_to_string(&call).is_ok_and(|call| call.starts_with(&number));
        let first = is_waiting();
        thread::sleep(Duration::from_millis(300));
        Ok(first && is_waiting())
    })
    .unwrap();
    tool.signal(signal).unwrap();
    tool.finish(PATIENCE).unwrap()
}

#[test]
fn a_signal_ends_a_sweep_of_memory_that_never_answers() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let source = include_str!("hostile_waits/memory.c");
    let fixture = Fixture::compile_text(source, &["-O1", "-rdynamic"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    if service.ready()["pid"] == 0 {
        return skip!("no process may handle faults of its memory here (userfaultfd)");
    }
    let pid = service.pid().to_string();
    for signal in [Signal::INT, Signal::TERM] {
        let run = stopped_as_it_waits(&["sweep", "--pid", &pid, "--progress", "native:*:none"], signal);
        assert_eq!(run.status.code(), Some(128 + signal.as_raw()), "{}", run.stderr);
        assert!(run.stderr.contains("memory or a file of a process did not answer"), "{}", run.stderr);
    }
}

/// What a command says of a process one of whose files is on a file system that answers no read any more.
#[test]
fn files_that_never_answer_are_refused_and_hold_up_no_command() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = everybody::python(|_| true).unwrap() else { return skip!("{}", everybody::NO_PYTHON) };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("files.py");
    fs::write(&script, include_str!("hostile_waits/files.py")).unwrap();
    let source = "int work(void) { volatile int n = 0; while (n < 1000) n++; return n; }";
    let library = Fixture::compile_text(source, &["-shared", "-fPIC"]).unwrap();
    let mut service = Service::start(python.command(&script).arg(library.program())).unwrap();
    if service.ready()["pid"] == 0 {
        return skip!("no file system may be mounted here (FUSE)");
    }
    let pid = service.ready()["pid"].to_string();
    let target = ["--pid", &pid, "-t", "native:*/library.so:work"];
    let listed = tool::run(&[&["list"], &target[..]].concat(), PATIENCE).unwrap();
    assert!(listed.status.success(), "{}\n{}", listed.stdout, listed.stderr);
    service.ask("hang").unwrap();
    for command in [&["list"][..], &["--duration", "1s", "--strict"]] {
        let run = tool::run(&[command, &target].concat(), PATIENCE).unwrap();
        let said = format!("{command:?}: {}\n{}", run.stdout, run.stderr);
        assert!(said.contains("its file system does not answer"), "{said}");
        assert!(said.contains("selects nothing"), "{said}");
    }
    let run = tool::run(&["doctor", "--pid", &pid], PATIENCE).unwrap();
    assert!(run.stdout.contains("its file system does not answer"), "{}\n{}", run.stdout, run.stderr);
    let run = tool::run(&["sweep", "--for", "20s", "--plan", "--pid", &pid], PATIENCE).unwrap();
    assert!(run.status.code().is_some(), "{}\n{}", run.stdout, run.stderr);
}
