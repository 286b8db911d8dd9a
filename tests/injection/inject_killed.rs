//! The loader is killed while it has borrowed a thread, at every step: the process goes on, and takes the
//! helper again.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{collections::BTreeMap, time::Duration};

use speed_bump_linux::process::Process;
use speed_bump_session::inject::InjectError;
use speed_bump_testing::{
    pythons, skip,
    wait::{wait_for, wait_for_exit},
};

use crate::{
    loader::{Loader, image_file, start_loader},
    program::Program,
    support,
};

/// What the programs do whose thread is borrowed: one waits, one computes, one is waited for to return from
/// native code.
const SCRIPTS: [&str; 3] = [
    "import time\nwhile 1: print(flush=True); time.sleep(0.001)",
    "def f(n):\n  return n if n < 2 else f(n - 1) + f(n - 2)\nwhile 1: print(flush=True); f(12)",
    "import hashlib\nb = bytes(1 << 22)\nwhile 1: print(flush=True); hashlib.sha256(b).hexdigest()",
];
/// Loaders killed at whatever step they are, for each script.
const KILLS: u32 = 40;
/// At that many different ones at least; ten are met as a rule.
const MIN_STEPS: usize = 4;

fn goes_on(program: &mut Program, after: &str) {
    if let Err(error) = program.prints() {
        panic!("after {after} it says nothing: {error}; {:?}", program.child.try_wait());
    }
    let status =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/status", program.process.pid())).unwrap();
    assert!(status.contains("SigBlk:\t0000000000000000"), "deaf to signals after {after}: {status}");
    assert!(status.contains("TracerPid:\t0\n"), "{after}: {status}");
}

/// That a whole session is to be had in it yet.
fn takes_the_helper(program: &Program, after: &str) {
    let injected =
        wait_for("the last session's helper to quit", || match support::inject_here(&program.process) {
            Ok(injected) => Some(injected),
            Err(InjectError::InUse { .. }) => None,
            Err(error) => panic!("after {after}: {error}"),
        })
        .unwrap();
    support::check_and_leave(&program.process, &injected);
}

fn ended_by_kill(loader: &mut Loader) {
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(
        wait_for_exit(&mut loader.child).unwrap().signal(),
        Some(libc::SIGKILL),
        "the loader was not killed"
    );
}

/// Each of these kills comes from within the step: from the borrowed thread itself, or while it stands still.
#[test]
fn killed_in_a_step_of_the_borrowed_thread() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let folder = tempfile::tempdir().unwrap();
    let (quiet, killer) = (image_file(folder.path(), "ONE"), image_file(folder.path(), "KILLER"));
    for script in SCRIPTS {
        // A library's constructors run once, so each needs a process in which nothing is loaded.
        for (fate, image) in [("dlopen", &killer), ("control", &quiet), ("attach", &quiet)] {
            let mut program = Program::start(python, script);
            let mut loader = start_loader(&program.process, image, fate);
            ended_by_kill(&mut loader);
            goes_on(&mut program, fate);
            takes_the_helper(&program, fate);
        }
    }
}

/// Stops the loader at any moment and kills it if the thread is borrowed then; the steps that were met, by
/// number.
#[test]
fn killed_at_any_moment_with_a_thread_borrowed() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let folder = tempfile::tempdir().unwrap();
    let image = image_file(folder.path(), "ONE");
    let mut met = BTreeMap::new();
    for script in SCRIPTS {
        let mut program = Program::start(python, script);
        for kill in 0..KILLS {
            let mut loader = start_loader(&program.process, &image, "any");
            let step = wait_for("a moment with a thread borrowed", || {
                std::thread::sleep(Duration::from_micros(u64::from(kill) * 37 % 1000));
                loader.stop();
                let step = borrowed_at(&program.process);
                if step.is_none() {
                    loader.go_on();
                }
                step
            })
            .unwrap();
            loader.child.kill().unwrap();
            ended_by_kill(&mut loader);
            *met.entry(step).or_insert(0_u32) += 1;
            goes_on(&mut program, &format!("kill {kill}"));
        }
        takes_the_helper(&program, "all kills");
    }
    println!("killed with the borrowed thread in: {met:?}");
    assert!(met.len() >= MIN_STEPS, "always at the same steps: {met:?}");
}

/// The system call that the main thread is in, if it is being traced; the loader stands still, so that this
/// lasts.
fn borrowed_at(process: &Process) -> Option<String> {
    let pid = process.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).ok()?;
    if status.contains("TracerPid:\t0\n") {
        return None;
    }
    let call = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/syscall")).ok()?;
    Some(call.split_whitespace().next().unwrap_or("?").to_owned())
}
