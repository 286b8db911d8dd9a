//! The engine `helper`: Python functions are counted and delayed where they are called, with no trap.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use speed_bump_testing::{
    Attached, Service,
    exact::{self, Subject},
    pythons,
    session::Ended,
    tool,
    wait::PATIENCE,
};
use speed_bump_tests::calls::{one_of_each_version, start};
use speed_bump_tests::helper::{attach, on_each, one_by_one, spins_end_with_their_sessions, threads};

const HELPER: [&str; 2] = ["--engine", "helper"];

fn with<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    HELPER.into_iter().chain(flags.iter().copied()).collect()
}

/// Runs statements that take several lines.
fn run(service: &mut Service, text: &str) -> Vec<Value> {
    let text = serde_json::to_string(text).unwrap();
    service.ask(&format!("exec({text}, globals())")).unwrap()
}

/// Changes doses in a session, which it has to accept.
fn set(session: &Attached, arguments: &[&str]) {
    let session = session.pid().to_string();
    let run = tool::run(&[&["set", "--session", &session], arguments].concat(), PATIENCE).unwrap();
    assert!(run.status.success(), "{arguments:?}: {}", run.stderr);
}

/// What a function's report says of its calls: seen, delayed.
fn of_function(ended: &Ended, target: usize, name: &str) -> (u64, u64) {
    let functions = ended.target(target)["functions"].as_array().unwrap();
    let function = functions.iter().find(|function| function["name"] == name).unwrap();
    (function["calls"].as_u64().unwrap(), function["delayed"].as_u64().unwrap())
}

#[test]
fn it_is_taken_for_python_and_nothing_is_attached() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &["--delay", "200us"]);
        service.ask("times(30, plain, 1)").unwrap();
        assert!(!session.has_said("probe sites of process"), "{python}: a site is attached");
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (30, 30), "{python}: {}", ended.run.stderr);
        assert_eq!(
            (&ended.target(0)["engine"], &ended.report["engine"]),
            (&"helper".into(), &"helper".into())
        );
        assert_eq!(threads(service.pid()), 0, "{python}");
    });
}

#[test]
fn the_delay_is_seen_from_inside() {
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = exact::start_python(python, &[]).unwrap();
        let attach = |service: &mut Service, delay: &str| {
            let flags = ["--entry", "helper", "--delay", delay];
            Attached::start(service.pid(), "*/exact.py:worked\n", &with(&flags))
        };
        let mut subject = Subject { service: &mut service, function: "worked", attach };
        subject.short().unwrap().assert_exact(&format!("{python}, a short delay"));
        subject.long(5_000_000).unwrap().assert_exact(&format!("{python}, a long delay"));
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn calls_of_many_threads_are_counted_each() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let targets = "*calls.py:plain delay=0\n*calls.py:other delay=1us frequency=7\n";
        let session = attach(&service, targets, &HELPER);
        service.ask("in_threads(8, 7000, plain, 1); in_threads(7, 1000, other, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!((ended.counts(0), ended.counts(1)), ((56_000, 0), (7_000, 1_000)), "{python}");
    });
}

#[test]
fn doses_change_for_targets_and_for_functions() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:[po][lt]*\n", &with(&["--delay", "0"]));
        service.ask("times(3, plain, 1); times(3, other, 1)").unwrap();
        set(&session, &["*calls.py:plain", "delay=2us"]);
        service.ask("times(4, plain, 1); times(4, other, 1)").unwrap();
        set(&session, &["*calls.py:[po][lt]*", "delay=1us", "frequency=2"]);
        service.ask("times(10, other, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(of_function(&ended, 0, "plain"), (7, 4), "{python}");
        assert_eq!(of_function(&ended, 0, "other"), (17, 5), "{python}");
    });
}

#[test]
fn forked_children_are_delayed_from_their_first_call_on_or_not_at_all() {
    const FORK: &str = "\
import os
for _ in range(5):
    child = os.fork()
    if child == 0:
        times(10, plain, 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0";
    on_each(|python| {
        for (flags, counts) in
            [(&["--delay", "1us"][..], (50, 50)), (&["--delay", "1us", "--no-children"], (0, 0))]
        {
            let mut service = start(python, &[]);
            let session = attach(&service, "*calls.py:plain\n", &with(flags));
            run(&mut service, FORK);
            assert_eq!(session.stop().unwrap().counts(0), counts, "{python} {flags:?}");
        }
        // Every seventh of all: of 4, 50 and 4.
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain frequency=7\n", &with(&["--delay", "1us"]));
        run(&mut service, &format!("times(4, plain, 1)\n{FORK}\ntimes(4, plain, 1)"));
        assert_eq!(session.stop().unwrap().counts(0), (58, 8), "{python}");
    });
}

/// Parent and child count in different ways: neither loses what the other counts meanwhile.
#[test]
fn what_calls_beside_its_child_is_counted_exactly() {
    const BESIDE: &str = "import os
child = os.fork()
times(20000, plain, 1)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0";
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain delay=0\n", &with(&[]));
        run(&mut service, BESIDE);
        assert_eq!(session.stop().unwrap().counts(0), (40_000, 0), "{python}");
    });
}

#[test]
fn a_spin_of_seconds_ends_with_the_session_and_with_us() {
    spins_end_with_their_sessions("helper");
}

#[test]
fn other_threads_go_on_during_a_long_spin() {
    const BESIDE: &str = "\
import threading, time
COUNT = 0
OVER = False
def beside():
    global COUNT
    while not OVER:
        COUNT += 1
counting = threading.Thread(target=beside)
counting.start()
plain(1)
BEFORE = COUNT
plain(1)
GONE_ON = COUNT - BEFORE
OVER = True
counting.join()";
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &with(&["--delay", "300ms"]));
        run(&mut service, BESIDE);
        let said = service.ask("say(gone_on=GONE_ON)").unwrap();
        // A tenth of the time would do for a million.
        assert!(said[0]["gone_on"].as_u64().unwrap() > 10_000, "{python}: {said:?}");
        assert_eq!(session.stop().unwrap().counts(0), (2, 2), "{python}");
    });
}

#[test]
fn what_it_cannot_do_is_refused() {
    on_each(|python| {
        let service = start(python, &[]);
        let refused = |targets: &str, flags: &[&str]| {
            let refused = Attached::start(service.pid(), targets, &with(flags)).unwrap_err();
            format!("{refused:#}")
        };
        let said = refused("native:*/libc[-.]*:getppid\n", &["--delay", "1us"]);
        assert!(said.contains("the engine `helper` cannot reach native functions"), "{python}: {said}");
        let said = refused("*calls.py:plain\n", &["--delay", "1us", "--no-inject"]);
        assert!(said.contains("--engine helper needs the helper in the process"), "{python}: {said}");
    });
}
