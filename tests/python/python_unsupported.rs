//! Interpreters that show no calls at all: a refusal that says what to do, or a warning beside native
//! targets.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{Attached, PythonBuild, pythons, session::obstacle, skip};
use speed_bump_tests::{
    calls::{code, run, start},
    helper::GETPPID,
};

/// Runs a case on every interpreter before 3.12 whose probe does not fire.
fn on_each(case: impl Fn(&PythonBuild)) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let silent = || pythons().iter().filter(|python| python.minor() < (3, 12) && !python.usdt_fires());
    if silent().next().is_none() {
        return skip!("no Python 3.8 to 3.11 without a probe that fires");
    }
    silent().for_each(case);
}

#[test]
fn python_targets_alone_are_refused() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let before = code(service.pid(), python);
        let run = run(service.pid(), "*/calls.py:plain\n", &["--no-inject"]);
        assert_eq!(run.status.code(), Some(4), "{python}: {}", run.stderr);
        let (major, minor, micro) = python.version;
        let version = format!("CPython {major}.{minor}.{micro}");
        let way_out = if python.has_usdt { "fires for generators" } else { "--with-dtrace" };
        for part in [version.as_str(), "3.12", "native and USDT targets work", way_out] {
            assert!(run.stderr.contains(part), "{python}: no `{part}` in {}", run.stderr);
        }
        assert_eq!(code(service.pid(), python), before, "{python}");
        service.ask("times(10, plain, 1)").unwrap();
    });
}

#[test]
fn beside_native_targets_it_is_a_warning() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let targets = &format!("*/calls.py:plain\n{GETPPID}");
        let session = Attached::start(service.pid(), targets, &["--no-inject"]).unwrap();
        service.ask("times(7, os.getppid); times(10, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!([ended.counts(0), ended.counts(1)], [(0, 0), (7, 7)], "{python}");
        let warning = "warning: line 1: `*/calls.py:plain` selects nothing";
        assert!(ended.run.stderr.contains(warning), "{python}: {}", ended.run.stderr);
        assert!(ended.run.stderr.contains("3.12"), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn strictly_it_is_an_error() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let before = code(service.pid(), python);
        let run = run(service.pid(), &format!("*/calls.py:plain\n{GETPPID}"), &["--no-inject", "--strict"]);
        assert_eq!(run.status.code(), Some(3), "{python}: {}", run.stderr);
        assert!(run.stderr.contains("line 1"), "{python}: {}", run.stderr);
        assert_eq!(code(service.pid(), python), before, "{python}");
        service.ask("times(7, os.getppid)").unwrap();
    });
}
