//! `list` on Python processes: what a session would do, without doing it.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{pythons, session::obstacle, skip};
use speed_bump_tests::calls::{code, list, start, with_trampolines, with_usdt};

#[test]
fn with_trampolines_the_functions_are_listed() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if with_trampolines().next().is_none() {
        return skip!("no Python has perf trampolines here: run `cargo xtask pythons`");
    }
    for python in with_trampolines() {
        let mut service = start(python, &["-X", "perf"]);
        service.ask("plain(1); INSTANCE.m(); outer(1)").unwrap();
        let before = code(service.pid(), python);
        let run = list(
            service.pid(),
            "*/calls.py:K.*\n*/calls.py:*\n*:no_such\n",
            &["--no-inject", "--all", "--delay", "20us"],
        );
        assert!(run.status.success(), "{python}: {}", run.stderr);
        for part in [
            "Python calls through perf-map: each call of any Python function costs about ",
            "read as py; engine bpf, delay 20us; selects ",
            "K.m (",
            "outer.<locals>.inner (",
            "calls.py), entry perf-map",
        ] {
            assert!(run.stdout.contains(part), "{python}: no `{part}` in {}", run.stdout);
        }
        assert!(!run.stdout.contains(" late ("), "{python}: never called: {}", run.stdout);
        let warning = "line 3: `*:no_such` selects nothing";
        assert!(run.stderr.contains(warning), "{python}: {}", run.stderr);
        assert_eq!(code(service.pid(), python), before, "{python}");
    }
}

#[test]
fn with_the_probe_it_says_that_calls_will_show() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if with_usdt().next().is_none() {
        return skip!("no Python has a function__entry that fires: run `cargo xtask pythons`");
    }
    for python in with_usdt() {
        let service = start(python, &[]);
        let before = code(service.pid(), python);
        let run = list(service.pid(), "*/calls.py:K.*\n", &["--no-inject"]);
        assert!(run.status.success(), "{python}: {}", run.stderr);
        for part in ["Python calls through usdt: ", "co_name", "source file"] {
            assert!(run.stdout.contains(part), "{python}: no `{part}` in {}", run.stdout);
        }
        assert_eq!(code(service.pid(), python), before, "{python}");
    }
}

#[test]
fn a_source_that_cannot_work_is_refused() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if pythons().is_empty() {
        return skip!("this machine has no Python 3.8 or newer");
    }
    for python in pythons() {
        let service = start(python, &[]);
        let refused = |entry: &str, code: i32, part: &str| {
            let run = list(service.pid(), "*/calls.py:plain\n", &["--entry", entry]);
            assert_eq!(run.status.code(), Some(code), "{python} {entry}: {}", run.stderr);
            assert!(run.stderr.contains(part), "{python} {entry}: no `{part}` in {}", run.stderr);
        };
        refused("magic", 2, "expected helper, perf-map, usdt or auto");
        if python.minor() < (3, 12) {
            refused("perf-map", 4, "they came with 3.12");
        }
        if !python.has_usdt {
            refused("usdt", 4, "has no probe function__entry here");
        } else if !python.usdt_fires() {
            refused("usdt", 4, "fires for generators");
        }
    }
}
