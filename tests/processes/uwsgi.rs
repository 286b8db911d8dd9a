//! uWSGI without `--enable-threads`: its master, and workers without requests, keep the interpreter's lock
//! while they wait. Workers are forked in C, and Python is not told of it.

#![allow(clippy::unwrap_used)]

use speed_bump_testing::{
    Attached, PythonBuild,
    session::obstacle,
    side_by_side, skip, tool,
    uwsgi::{KEEPS_LOCK, Uwsgi, builds},
    wait::{PATIENCE, wait_until},
};

const TARGET: &str = "*/uwsgi.py:work";

/// The interpreters with a uWSGI that keeps the lock.
fn with_package() -> Vec<&'static PythonBuild> {
    builds().into_iter().filter(|build| KEEPS_LOCK.contains(&build.minor())).collect()
}

/// Runs a case for each of them. A macro, so that what is skipped goes by the name of the test.
macro_rules! on_each {
    ($case:expr) => {{
        if let Some(why) = obstacle() {
            return skip!("{why}");
        }
        let found = with_package();
        if found.is_empty() {
            return skip!("pyuwsgi is not here: run `cargo xtask packages`, which needs PyPI");
        }
        side_by_side::on_each(&found, $case);
    }};
}

#[test]
fn workers_are_covered_and_the_master_that_keeps_the_lock_is_named() {
    on_each!(|build| {
        let server = Uwsgi::start(build, &["--processes", "2"]).unwrap();
        let session = Attached::start(server.master(), TARGET, &["--delay", "0"]).unwrap();
        let calls: u32 = (1..=20).map(|calls| server.calls(calls).map(|_| calls).unwrap()).sum();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0).0, u64::from(calls), "{build}: {}", ended.run.stderr);
        let master = format!("process {}: a thread keeps the interpreter's lock", server.master());
        assert!(ended.run.stderr.contains(&master), "{build}: {}", ended.run.stderr);
    });
}

#[test]
fn workers_that_the_master_forks_during_a_session_are_covered_and_do_not_hang() {
    on_each!(|build| {
        let server = Uwsgi::start(build, &["--processes", "1"]).unwrap();
        let session = Attached::start(server.master(), TARGET, &["--delay", "0"]).unwrap();
        let mut calls = 0;
        for _ in 0..3 {
            let worker = server.calls(5).unwrap();
            calls += 5;
            kill(worker);
            wait_until("another worker answers", || Ok(server.calls(0).is_ok_and(|now| now != worker)))
                .unwrap();
            assert_ne!(server.calls(7).unwrap(), worker, "{build}");
            calls += 7;
        }
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0).0, calls, "{build}: {}", ended.run.stderr);
        // After the session they work as before.
        kill(server.calls(1).unwrap());
        wait_until("another worker answers", || Ok(server.calls(1).is_ok())).unwrap();
    });
}

#[test]
fn a_refused_attempt_leaves_nothing_that_the_next_one_or_a_new_worker_meets() {
    on_each!(|build| {
        let server = Uwsgi::start(build, &["--processes", "1"]).unwrap();
        let master = server.master().to_string();
        let strict = ["--pid", &master, "--strict", "--delay", "0", "--duration", "1s", "-t", TARGET];
        for _ in 0..2 {
            let run = tool::run(&strict, PATIENCE).unwrap();
            assert!(!run.status.success(), "{build}: {}", run.stderr);
            for part in [&format!("process {master}: "), "keeps the interpreter's lock", "enable-threads"] {
                assert!(run.stderr.contains(part), "{build}: {}", run.stderr);
            }
        }
        // One that is forked now starts and answers.
        let worker = server.calls(1).unwrap();
        kill(worker);
        wait_until("another worker answers", || Ok(server.calls(0).is_ok_and(|now| now != worker))).unwrap();
        let session = Attached::start(server.master(), TARGET, &["--delay", "0"]).unwrap();
        server.calls(11).unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0).0, 11, "{build}: {}", ended.run.stderr);
        assert!(!ended.run.stderr.contains("another session"), "{build}: {}", ended.run.stderr);
    });
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
