//! The loader is killed in the middle of injecting, at every moment: the process goes on.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "inject/support.rs"]
mod support;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use speed_bump_testing::{pythons, skip};
use speed_bump_user::inject::{InjectError, Limits};

/// Names the process that the child of this test is to inject into; see [`loader`].
const TARGET: &str = "SPEED_BUMP_TEST_TARGET";

/// Steps of the time at which it is killed.
const STEP: Duration = Duration::from_millis(2);
const KILLS: u32 = 60;

/// Not a test by itself: the loader that the test below starts and kills.
#[test]
#[ignore = "run by the test below, as a process of its own"]
fn loader() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let process = support::open(target.parse().unwrap());
    let image = std::fs::read(std::env::var("SPEED_BUMP_TEST_IMAGE").unwrap()).unwrap();
    let interpreters = support::interpreters(&process);
    println!("ready");
    // Until it is killed. The helper quits by itself, so that the next session is let in.
    let mut sessions = 0_u32;
    loop {
        match support::inject_known(&process, &image, b'Q', Limits::default(), &interpreters) {
            Ok(_) => sessions += 1,
            Err(InjectError::InUse { .. }) => {}
            Err(error) => panic!("after {sessions} sessions: {error}"),
        }
        println!("{sessions} sessions");
    }
}

#[test]
fn a_killed_loader_leaves_a_process_that_goes_on() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, support::image()).unwrap();
    for script in [
        "import time\nwhile 1: print(flush=True); time.sleep(0.001)",
        "def f(n):\n  return n if n < 2 else f(n - 1) + f(n - 2)\nwhile 1: print(f(12), flush=True)",
    ] {
        let mut child = python.interpreter().args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, receiver) = std::sync::mpsc::channel();
        let reader =
            std::thread::spawn(
                move || while lines.next().is_some_and(|line| sender.send(line.unwrap()).is_ok()) {},
            );
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        let mut sessions = 0;
        for kill in 0..KILLS {
            let mut loader = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "loader", "--nocapture"])
                .env(TARGET, child.id().to_string())
                .env("SPEED_BUMP_TEST_IMAGE", &image)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut output = BufReader::new(loader.stdout.take().unwrap()).lines();
            while output.next().is_some_and(|line| !line.unwrap().contains("ready")) {}
            std::thread::sleep(STEP * kill);
            loader.kill().unwrap();
            loader.wait().unwrap();
            let last = output.map_while(Result::ok).filter(|line| line.ends_with(" sessions")).last();
            sessions += last.map_or(0, |line| line.split(' ').next().unwrap().parse::<u32>().unwrap());
            assert!(child.try_wait().unwrap().is_none(), "{script}: ended by kill {kill}");
            while receiver.try_recv().is_ok() {}
            receiver
                .recv_timeout(Duration::from_secs(60))
                .unwrap_or_else(|error| panic!("{script}: says nothing after kill {kill}: {error}"));
        }
        assert!(sessions > 0, "no loader came to the end of a session");
        // No thread is left stopped or deaf to signals.
        let process = support::open(child.id().cast_signed());
        support::wait_for("the last session's helper to quit", || {
            support::inject_with(&process, support::image(), b'Q', Limits::default()).ok()
        });
        let main = std::fs::read_to_string(format!("/proc/{0}/task/{0}/status", child.id())).unwrap();
        assert!(main.contains("SigBlk:\t0000000000000000"), "{main}");
        child.kill().unwrap();
        child.wait().unwrap();
        drop(receiver);
        reader.join().unwrap();
    }
}
