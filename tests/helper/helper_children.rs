//! Children of a process with the helper in it: forked ones inherit it, others get one of their own.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;
use speed_bump_testing::{PythonBuild, pythons::Form, wait::wait_until};
use speed_bump_tests::calls::{counts, functions, start};
use speed_bump_tests::helper::{attach, on_each, threads};

/// The children that run the interpreter anew.
const ANEW: [&str; 2] = ["Worker, 'spawn'", "Program"];
/// Those that go on as a copy of their parent.
const COPIES: [&str; 2] = ["Forked", "Worker, 'fork'"];

#[test]
fn forked_children_are_counted_with_their_parent() {
    on_each(|python| {
        for how in COPIES {
            let mut service = start(python, &[]);
            let session = attach(&service, "*calls.py:plain\n*calls.py:late\n", &["--delay", "1us"]);
            service.ask(&format!("times(10, plain, 1); child({how})")).unwrap();
            session.wait_for(" is covered").unwrap();
            wait_until("the child is covered", || {
                // Whichever module says so.
                let is_said = |line: &str| line.contains(": child ") && line.ends_with(" is covered");
                Ok(session.stderr().lines().any(is_said))
            })
            .unwrap();
            // A function that the parent has never called gets its number in the child.
            service.ask("CHILD.ask('times(200, plain, 1); times(30, late, 1)'); times(7, late, 1)").unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(ended.counts(0), (210, 210), "{python}: {how}");
            assert_eq!(ended.counts(1), (37, 37), "{python}: {how}");
            assert_eq!(functions(&ended).len(), 2, "{python}: {how}: one line each");
            assert_eq!(ended.report["processes"], 2, "{python}: {how}");
            service.ask("CHILD.ask('times(200, plain, 1)')").unwrap();
        }
    });
}

#[test]
fn children_that_run_the_interpreter_anew_get_a_helper_of_their_own() {
    // What runs through a dynamic loader of its own cannot run itself anew; the same build in a container
    // can.
    let can_run_itself = |python: &PythonBuild| python.form != Form::Loader;
    on_each(|python| {
        for how in ANEW.into_iter().filter(|_| can_run_itself(python)) {
            let mut service = start(python, &[]);
            let session = attach(&service, "*calls.py:plain\n", &["--delay", "1us"]);
            let said = service.ask(&format!("times(10, plain, 1); child({how})")).unwrap();
            let pid = i32::try_from(said[0]["pid"].as_i64().unwrap()).unwrap();
            let at_work = format!("the helper is at work in process {pid}");
            session.wait_for(&at_work).unwrap_or_else(|error| panic!("{python}: {how}: {error}"));
            service.ask("CHILD.ask('times(200, plain, 1)')").unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(ended.counts(0), (210, 210), "{python}: {how}");
            assert_eq!(functions(&ended).len(), 1, "{python}: {how}: two processes, one function");
            wait_until("the child's helper has left", || Ok(threads(pid) == 0)).unwrap();
            service.ask("CHILD.ask('times(200, plain, 1)')").unwrap();
        }
    });
}

#[test]
fn without_children_a_forked_child_runs_free() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &["--no-children", "--delay", "1us"]);
        service.ask("child(Forked)").unwrap();
        service.ask("CHILD.ask('times(200, plain, 1)'); times(3, plain, 1)").unwrap();
        assert_eq!(counts(&session.stop().unwrap(), "plain"), (3, 3), "{python}");
    });
}

#[test]
fn children_that_call_at_once_live_to_tell() {
    on_each(|python| {
        for (flags, most) in [(&["--delay", "1us"], 105), (&["--no-children", "--delay=1us"], 100)] {
            let mut service = start(python, &[]);
            let session = attach(&service, "*calls.py:plain\n", flags);
            // Often enough that the kernel has optimised the probe.
            service.ask("times(100, plain, 1)").unwrap();
            for _ in 0..5 {
                let at_once = "pid = os.fork() or (plain(1), os._exit(7)); say(status=os.waitpid(pid, 0)[1])";
                let said = service.ask(at_once).unwrap();
                assert_eq!(said[0]["status"], 7 << 8, "{python}: {flags:?}");
            }
            let (calls, _) = session.stop().unwrap().counts(0);
            assert!((100..=most).contains(&calls), "{python}: {flags:?}: {calls}");
        }
    });
}

#[test]
fn a_child_of_a_child_is_counted_with_both() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &["--delay", "1us"]);
        let covered = |said: &[Value]| {
            let pid = said[0]["pid"].as_i64().unwrap();
            wait_until("the child is covered", || Ok(session.has_said(&format!("child {pid} is covered"))))
                .unwrap();
        };
        covered(&service.ask("times(5, plain, 1); child(Forked); say(pid=CHILD.pid)").unwrap());
        service.ask("CHILD.ask('globals().update(G=Forked())')").unwrap();
        service.ask("CHILD.ask('times(20, plain, 1)')").unwrap();
        let said = service
            .ask("CHILD.ask('os.write(1, json.dumps({\"pid\": G.pid}).encode() + bytes([10]))')")
            .unwrap();
        covered(&said);
        service.ask("CHILD.ask('G.ask(\"times(30, plain, 1)\")')").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (55, 55), "{python}");
        assert_eq!(ended.report["processes"], 3, "{python}");
    });
}
