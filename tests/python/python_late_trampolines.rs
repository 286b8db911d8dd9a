//! Processes that run without perf trampolines and may switch them on later.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{Attached, session::obstacle, skip};
use speed_bump_tests::calls::{code, run, start, with_trampolines};

#[test]
fn without_trampolines_nothing_is_attached_and_the_error_says_what_to_do() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut silent = with_trampolines().filter(|python| !python.usdt_fires()).peekable();
    if silent.peek().is_none() {
        return skip!("no Python 3.12 to 3.14 here: run `cargo xtask pythons`");
    }
    for python in silent {
        let mut service = start(python, &[]);
        let before = code(service.pid(), python);
        let run = run(service.pid(), "*/calls.py:plain\n", &["--no-inject"]);
        assert_eq!(run.status.code(), Some(4), "{python}: {}", run.stderr);
        for part in
            ["-X perf", "PYTHONPERFSUPPORT=1", "sys.activate_stack_trampoline(\"perf\")", "--entry perf-map"]
        {
            assert!(run.stderr.contains(part), "{python}: no `{part}` in {}", run.stderr);
        }
        assert_eq!(code(service.pid(), python), before, "{python}");
        service.ask("times(10, plain, 1)").unwrap();
    }
}

#[test]
fn trampolines_that_are_switched_on_during_the_session_are_taken_up() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if with_trampolines().next().is_none() {
        return skip!("no Python has perf trampolines here: run `cargo xtask pythons`");
    }
    for python in with_trampolines() {
        let mut service = start(python, &[]);
        let targets = "*/calls.py:plain\n*/calls.py:K.m\n";
        let session = Attached::start(service.pid(), targets, &["--entry", "perf-map", "-vv"]).unwrap();
        // These are not visible, and must not be invented.
        service.ask("times(1000, plain, 1)").unwrap();
        service.ask(r#"sys.activate_stack_trampoline("perf")"#).unwrap();
        for (function, first, then) in
            [("plain", "plain(1)", "times(100, plain, 1)"), ("K.m", "INSTANCE.m()", "times(30, INSTANCE.m)")]
        {
            service.ask(first).unwrap();
            session.wait_for(&format!("{function} is covered")).unwrap();
            service.ask(then).unwrap();
        }
        let ended = session.stop().unwrap();
        // The first call may be seen too: its line is in the map just before it enters.
        for (target, sure) in [(0, 100), (1, 30)] {
            let (calls, delayed) = ended.counts(target);
            assert!((sure..=sure + 1).contains(&calls) && delayed == calls, "{python}: {calls}, {delayed}");
            assert_eq!(ended.target(target)["entry"], "perf-map", "{python}");
        }
        assert!(service.quit().unwrap().success(), "{python}");
    }
}
