//! A process whose main thread has ended while others run on.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{
    PythonBuild, Service, pythons,
    session::obstacle_to_other_threads,
    skip, tool,
    wait::{PATIENCE, wait_for},
};
use speed_bump_tests::{
    calls::{list, one_of_each_version, run, start},
    helper::{GETPPID, attach, one_by_one},
};

/// Another thread answers in the place of the main thread, which ends.
fn without_main_thread(python: &PythonBuild) -> Service {
    let mut service = start(python, &[]);
    let other = "lambda: (say(event='done'), main())";
    let command = format!("threading.Thread(target={other}).start(); ctypes.CDLL(None).pthread_exit(None)");
    service.ask(&command).unwrap();
    let stat = format!("/proc/{}/stat", service.pid());
    wait_for("the main thread's end", || {
        std::fs::read_to_string(&stat).unwrap().contains(") Z ").then_some(())
    })
    .unwrap();
    service
}

#[test]
fn python_functions_of_a_process_without_its_main_thread() {
    if let Some(why) = obstacle_to_other_threads() {
        return skip!("{why}");
    }
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = without_main_thread(python);
        let listed = list(service.pid(), "*/calls.py:plain\n", &[]);
        assert!(listed.stdout.contains("plain"), "{python}: {}\n{}", listed.stdout, listed.stderr);
        for _ in 0..2 {
            let session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
            service.ask("times(100, plain, 1)").unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(ended.counts(0), (100, 100), "{python}\n{}", ended.run.stderr);
        }
        service.ask("times(3, plain, 1)").unwrap();
    });
}

/// The kernel would take the probe and never run into it.
#[test]
fn native_functions_of_such_a_process_are_refused() {
    one_by_one(&pythons().last().into_iter().collect::<Vec<_>>(), |python| {
        let service = without_main_thread(python);
        let refused = run(service.pid(), GETPPID, &["--duration", "1s"]);
        assert!(!refused.status.success(), "{python}: {}", refused.stdout);
        assert!(refused.stderr.contains("has ended its main thread"), "{python}: {}", refused.stderr);
    });
}

/// Whoever adds a target learns that its calls are not counted, and the others are counted as before.
#[test]
fn native_functions_that_are_added_in_such_a_process_are_refused() {
    if let Some(why) = obstacle_to_other_threads() {
        return skip!("{why}");
    }
    one_by_one(&pythons().last().into_iter().collect::<Vec<_>>(), |python| {
        let mut service = without_main_thread(python);
        let session = attach(&service, "*/calls.py:plain\n", &[]);
        let arguments = ["set", "--session", &session.pid().to_string(), GETPPID.trim(), "--add"];
        let refused = tool::run(&arguments, PATIENCE).unwrap();
        assert!(!refused.status.success(), "{python}: {}", refused.stdout);
        let why = format!("process {}: not all functions of the changed targets are covered", service.pid());
        assert!(refused.stderr.contains(&why), "{python}: {}", refused.stderr);
        assert!(refused.stderr.contains("has ended its main thread"), "{python}: {}", refused.stderr);
        service.ask("times(100, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (100, 100), "{python}\n{}", ended.run.stderr);
        assert!(ended.run.stderr.contains(&why), "{python}: {}", ended.run.stderr);
    });
}
