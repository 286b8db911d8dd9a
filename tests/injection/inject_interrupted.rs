//! What happens to a process while a thread of it is borrowed: signals, stops, its end, and another program
//! in its place. Nothing is lost, nothing hangs, and what can go on does.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    time::Duration,
};

use rustix::process::{Signal, pidfd_send_signal};
use speed_bump_session::inject::{InjectError, Injected, Limits, inject};
use speed_bump_testing::{PythonBuild, pythons, pythons::Form, skip, wait::wait_for};

use crate::{program::Program, support};

/// Waits for a line such as it prints from now on.
fn wait_for_line(program: &Program, what: &str, is_it: impl Fn(&str) -> bool) {
    wait_for(what, || is_it(&program.line()).then_some(())).unwrap();
}

fn send(program: &Program, signal: Signal) {
    pidfd_send_signal(&program.process, signal).unwrap();
}

/// Injects a helper that takes its time, with something that happens while the thread stands still for it.
fn inject_with(program: &Program, meanwhile: &(dyn Fn() + Sync)) -> Result<Injected, InjectError> {
    let mut fill = |block: &File| -> io::Result<()> {
        block.set_len(4096)?;
        block.write_all_at(b"W", 0)?;
        meanwhile();
        Ok(())
    };
    let interpreters = support::interpreters(&program.process);
    inject(
        &program.process,
        &program.process.program()?,
        support::image(),
        &interpreters,
        &mut fill,
        Limits::default(),
    )
}

fn takes_the_helper(program: &Program) {
    let injected = support::inject_here(&program.process).unwrap();
    support::check_and_leave(&program.process, &injected);
}

/// Prints how many signals its handler has seen.
const COUNTING: &str = "\
import signal, time
seen = 0
def count(*_):
    global seen
    seen += 1
signal.signal(signal.SIGUSR1, count)
signal.signal(signal.SIGALRM, count)
while 1: print(seen, flush=True); time.sleep(0.005)";

#[test]
fn a_signal_with_a_handler_is_delivered_once_afterwards() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let program = Program::start(python, COUNTING);
    for round in 1..=3 {
        let injected = inject_with(&program, &|| send(&program, Signal::USR1)).unwrap();
        support::check_and_leave(&program.process, &injected);
        wait_for_line(&program, "the handler", |line| line == round.to_string());
        for _ in 0..3 {
            assert_eq!(program.line(), round.to_string(), "the handler ran once");
        }
    }
}

#[test]
fn a_storm_of_alarms_does_no_harm() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let storm = COUNTING.replace("while 1", "signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)\nwhile 1");
    let program = Program::start(python, &storm);
    for _ in 0..5 {
        let injected = inject_with(&program, &|| ()).unwrap();
        support::check_and_leave(&program.process, &injected);
        let seen: u64 = program.line().parse().unwrap();
        wait_for_line(&program, "further alarms", |line| line.parse::<u64>().unwrap() > seen + 10);
    }
}

#[test]
fn a_stop_comes_when_the_thread_is_given_back() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let program = Program::start(python, COUNTING);
    let injected = inject_with(&program, &|| send(&program, Signal::STOP)).unwrap();
    wait_for("the stop", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", program.process.pid())).unwrap();
        stat.contains(") T ").then_some(())
    })
    .unwrap();
    let error = support::inject_here(&program.process).unwrap_err();
    assert!(matches!(error, InjectError::Stopped { .. } | InjectError::InUse { .. }), "{error}");
    send(&program, Signal::CONT);
    support::check_and_leave(&program.process, &injected);
    program.prints().unwrap();
}

/// Between stopping and continuing there is no time at all in which the process is known to run.
#[test]
fn a_stop_that_is_continued_at_once() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let program = Program::start(python, COUNTING);
    let both = || {
        send(&program, Signal::STOP);
        send(&program, Signal::CONT);
    };
    let injected = inject_with(&program, &both).unwrap();
    support::check_and_leave(&program.process, &injected);
    program.prints().unwrap();
}

#[test]
fn its_end_is_told_and_nothing_hangs() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let program = Program::start(python, COUNTING);
    let error = inject_with(&program, &|| send(&program, Signal::KILL)).unwrap_err();
    assert!(matches!(error, InjectError::Ended { .. }), "{error}");

    let program = Program::start(python, COUNTING);
    // The helper is at work for a tenth of a second.
    let error = std::thread::scope(|scope| {
        let kill = || {
            std::thread::sleep(Duration::from_millis(30));
            send(&program, Signal::KILL);
        };
        inject_with(&program, &|| drop(scope.spawn(kill))).unwrap_err()
    });
    assert!(matches!(error, InjectError::Ended { .. }), "{error}");
}

/// A thread of it executes itself anew, as told.
const EXECUTING: &str = "\
import os, sys, threading, time
def execute():
    os.read(0, 1)
    again = [sys.executable, '-c', *sys.argv[1:]]
    os.execv(sys.executable, sys.orig_argv if hasattr(sys, 'orig_argv') else again)
print('new', flush=True)
threading.Thread(target=execute, daemon=True).start()
while 1: print(flush=True); time.sleep(0.005)";

#[test]
fn another_program_takes_its_place() {
    let direct = |python: &&PythonBuild| python.form == Form::Direct && python.minor() >= (3, 10);
    let Some(python) = pythons().iter().rfind(direct) else {
        return skip!("no Python from 3.10 on that executes itself by its own path");
    };
    let program = Program::start(python, EXECUTING);
    let execute = || {
        program.skip_lines();
        program.child.stdin.as_ref().unwrap().write_all(b"x").unwrap();
        wait_for_line(&program, "the new program", |line| line == "new");
    };
    let error = inject_with(&program, &execute).unwrap_err();
    assert!(matches!(error, InjectError::Ended { .. }), "{error}");
    program.prints().unwrap();
    takes_the_helper(&program);
    program.prints().unwrap();
}

/// Executes itself again and again: the facts about it may belong to another program a moment later.
const RESTLESS: &str = "\
import os, sys, time
print(flush=True)
time.sleep(0.01)
os.execv(sys.executable, sys.orig_argv)";

#[test]
fn a_program_that_is_replaced_again_and_again() {
    let direct = |python: &&PythonBuild| python.form == Form::Direct && python.minor() >= (3, 10);
    let Some(python) = pythons().iter().rfind(direct) else {
        return skip!("no Python from 3.10 on that executes itself by its own path");
    };
    let program = Program::start(python, RESTLESS);
    let (mut taken, mut refused) = (0, std::collections::BTreeMap::new());
    for _ in 0..100 {
        match inject_with(&program, &|| ()) {
            Ok(_) => taken += 1,
            Err(error) => *refused.entry(kind(&error)).or_insert(0) += 1,
        }
        program.line();
    }
    println!("taken {taken}; {refused:?}");
    assert!(taken > 0, "the helper never came in: {refused:?}");
    program.prints().unwrap();
}

/// Why a program was not to be had that is there for some milliseconds; anything else is a fault.
fn kind(error: &InjectError) -> &'static str {
    match error {
        InjectError::Ended { .. } => "ended",
        InjectError::NoSafePoint { .. } => "no safe point",
        InjectError::InUse { .. } => "in use",
        InjectError::NoDynamicLoader { .. } => "not loaded yet",
        InjectError::Process(_) | InjectError::MappedFile(_) => "changed while it was inspected",
        error => panic!("{error}"),
    }
}
