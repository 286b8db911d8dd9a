//! The loader is killed while it has borrowed a thread, at every step: the process goes on, and takes the
//! helper again.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use speed_bump_testing::{
    Lines, pythons, skip,
    wait::{wait_for, wait_for_exit},
};
use speed_bump_user::{
    inject::{InjectError, Limits, inject},
    process::Process,
};

use crate::{program::Program, support};

/// What the loader of these tests is told: the process, the file with the image, and the [`Fate`].
const TARGET: &str = "SPEED_BUMP_TEST_TARGET";
const IMAGE: &str = "SPEED_BUMP_TEST_IMAGE";
const FATE: &str = "SPEED_BUMP_TEST_FATE";

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
const LEAST_STEPS: usize = 4;

/// Not a test by itself: the loader that the tests below start and kill.
#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn loader() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let process = support::open(target.parse().unwrap());
    let image = std::fs::read(std::env::var(IMAGE).unwrap()).unwrap();
    let interpreters = support::interpreters(&process);
    let fate = std::env::var(FATE).unwrap();
    let behaviour = if fate == "attach" { b'K' } else { b'Q' };
    let mut fill = |block: &File| {
        if fate == "control" {
            rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)?;
        }
        block.set_len(4096)?;
        block.write_all_at(&[behaviour], 0)
    };
    println!("ready");
    loop {
        match inject(
            &process,
            &process.program().unwrap(),
            &image,
            &interpreters,
            &mut fill,
            Limits::default(),
        ) {
            // The helper quits by itself, so that the next session is let in.
            Ok(_) | Err(InjectError::InUse { .. }) => {}
            Err(error) => panic!("{fate}: {error}"),
        }
    }
}

fn start_loader(target: &Process, image: &Path, fate: &str) -> Child {
    let mut loader = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "inject_killed::loader", "--nocapture"])
        .env(TARGET, target.pid().to_string())
        .env(IMAGE, image)
        .env(FATE, fate)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of(loader.stdout.take().unwrap());
    while lines.line().is_ok_and(|line| !line.contains("ready")) {}
    loader
}

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

fn image_file(folder: &Path, variant: &str) -> std::path::PathBuf {
    let file = folder.join(variant);
    std::fs::write(&file, support::image_variant(variant)).unwrap();
    file
}

fn ended_by_kill(loader: &mut Child) {
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(wait_for_exit(loader).unwrap().signal(), Some(libc::SIGKILL), "the loader was not killed");
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
                stop(&loader);
                let step = borrowed_at(&program.process);
                if step.is_none() {
                    rustix::process::kill_process(pid_of(&loader), Signal::CONT).unwrap();
                }
                step
            })
            .unwrap();
            loader.kill().unwrap();
            ended_by_kill(&mut loader);
            *met.entry(step).or_insert(0_u32) += 1;
            goes_on(&mut program, &format!("kill {kill}"));
        }
        takes_the_helper(&program, "all kills");
    }
    println!("killed with the borrowed thread in: {met:?}");
    assert!(met.len() >= LEAST_STEPS, "always at the same steps: {met:?}");
}

fn pid_of(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_child(child)
}

/// Stops the loader, and waits until all its threads stand still.
fn stop(loader: &Child) {
    rustix::process::kill_process(pid_of(loader), Signal::STOP).unwrap();
    wait_for("the loader to stop", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", loader.id())).unwrap();
        let stands = |thread: std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") T "))
        };
        threads.map(Result::unwrap).all(stands).then_some(())
    })
    .unwrap();
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
