//! How the helper leaves a process, and what it leaves there.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "python/calls.rs"]
mod calls;
#[path = "python/helper.rs"]
mod helper;

use calls::start;
use helper::{attach, images, on_each, threads, tools};
use rustix::process::Signal;
use speed_bump_testing::session::wait_until;

const TARGETS: &str = "*/calls.py:plain\n";

#[test]
fn nothing_is_left_but_an_image_that_sleeps() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let pid = service.pid();
        let session = attach(&service, TARGETS, &[]);
        assert_eq!((threads(pid), images(pid)), (1, 1), "{python}");
        let tool = usize::from(python.minor() >= (3, 12));
        assert_eq!(tools(python, &mut service).len(), tool, "{python}");
        session.stop().unwrap();
        // The tool waited for it.
        assert_eq!(tools(python, &mut service).len(), 0, "{python}");
        wait_until("the helper's thread has ended", || Ok(threads(pid) == 0)).unwrap();
        service.ask("times(10, plain, 1)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn a_tool_that_is_killed_is_missed() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let pid = service.pid();
        let session = attach(&service, TARGETS, &["--delay", "20us"]);
        service.ask("times(10, plain, 1)").unwrap();
        session.kill().unwrap();
        wait_until("the helper has left", || Ok(threads(pid) == 0 && tools(python, &mut service).is_empty()))
            .unwrap_or_else(|error| panic!("{python}: {error}"));
        service.ask("times(10, plain, 1)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn the_next_session_finds_the_helper_there() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let pid = service.pid();
        for round in 0..5 {
            // Other targets, and so other functions, each time.
            let (targets, command) = match round % 2 {
                0 => ("*/calls.py:plain\n", "times(20, plain, 1); times(5, other, 1)"),
                _ => ("*/calls.py:other\n", "times(20, other, 1); times(5, plain, 1)"),
            };
            let session = attach(&service, targets, &["--delay", "1us"]);
            service.ask(command).unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(ended.counts(0), (20, 20), "{python}: round {round}");
            assert_eq!(images(pid), 1, "{python}: round {round}");
        }
    });
}

#[test]
fn a_session_after_one_that_was_killed_waits_for_the_helper() {
    on_each(|python| {
        let mut service = start(python, &[]);
        attach(&service, TARGETS, &[]).kill().unwrap();
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        service.ask("times(20, plain, 1)").unwrap();
        assert_eq!(session.stop().unwrap().counts(0), (20, 20), "{python}");
        assert_eq!(images(service.pid()), 1, "{python}");
    });
}

#[test]
fn a_process_that_ends_ends_the_session() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        service.ask("times(20, plain, 1)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
        assert_eq!(session.finish().unwrap().counts(0), (20, 20), "{python}");
    });
}

#[test]
fn a_process_that_is_killed_ends_the_session() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        service.ask("times(20, plain, 1)").unwrap();
        let pid = rustix::process::Pid::from_raw(service.pid()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        assert_eq!(session.finish().unwrap().counts(0), (20, 20), "{python}");
    });
}
