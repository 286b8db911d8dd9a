//! `sweep` and `report` as commands: what they refuse, what they write, and how they end.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command, time::Duration};

use serde_json::Value;
use speed_bump_testing::{tool, wait::PATIENCE};

use crate::planted::planted_tiny;

#[test]
fn what_cannot_be_is_refused_with_the_way_out() {
    for (arguments, words) in [
        (
            &["sweep", "--pid", "1", "--progress", "*:f", "-t", "*:f", "--worth", "2"][..],
            "in per cent, as 5%",
        ),
        (&["sweep", "--pid", "1", "--progress", "*:f", "--progress", "*:f"], "is named twice"),
        (&["sweep", "--pid", "1", "--progress", ""], "name one target"),
        (&["sweep", "--pid", "1", "--metric", "a:b"], "write prometheus:URL#name"),
        (&["sweep", "--pid", "1", "--metric", "gauge:command:true"], "a gauge is no amount of work"),
        (&["sweep", "--pid", "1", "--bench", "true", "--bench-regex", "a"], "must have one group"),
        (&["sweep", "--pid", "1", "--bench", "true", "--slice", "1s"], "cannot be used with"),
        (
            &["sweep", "--pid", "1", "--progress", "*:f", "--guard", "p99<5ms"],
            "it is not known of --progress",
        ),
        (&["sweep", "--pid", "1", "--guard", "p99<5"], "is not a guard"),
        (&["sweep", "--pid", "1", "--progress", "*:f", "-t", "*:f", "--threshold", "3"], "between 0 and 1"),
        (&["report", "/does/not/exist"], "cannot read /does/not/exist"),
        (&["report", "/dev/null"], "is not what --json writes"),
    ] {
        let run = tool::run(arguments, PATIENCE).unwrap();
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn a_record_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.json");
    fs::write(&file, "{\"schema\": \"speed-bump/list/1\"}").unwrap();
    let run = tool::run(&["report", file.to_str().unwrap()], PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("speed-bump/experiment/2"), "{}", run.stderr);
}

#[test]
fn a_unit_that_never_comes_is_told_of() {
    let Some(service) = planted_tiny("shadow") else { return };
    let run =
        service.sweep(&["-t", "*/planted.py:render", "--progress", "*/planted.py:inside", "--for", "10s"]);
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("no unit of work was done in 2 s"), "{}", run.stderr);
    let run =
        service.sweep(&["-t", "*/planted.py:inside", "--progress", "*/planted.py:unit", "--for", "10s"]);
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("none of the selected functions was called"), "{}", run.stderr);
}

/// Preparation is part of the time that a sweep may take, and is reported.
#[test]
fn preparation_that_leaves_no_time_is_told_of() {
    let Some(service) = planted_tiny("shadow") else { return };
    // To sample and to count takes five seconds and more.
    let run = service.sweep(&["--progress", "*/planted.py:unit", "--closed-loop", "--for", "5s"]);
    assert_eq!(run.status.code(), Some(2), "{}\n{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("of the 5s that --for gives"), "{}", run.stderr);
    for step in ["sample: ", "census: "] {
        let is_told = |line: &str| line.starts_with(step) && line.ends_with(" s so far");
        assert!(run.stderr.lines().any(is_told), "{step}: {}", run.stderr);
    }
}

/// Interrupted, it reports what there is, and the service has no delay left.
#[test]
fn an_interrupted_sweep_reports_what_there_is() {
    let Some(service) = planted_tiny("shadow") else { return };
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let mut command = Command::new(tool::path().unwrap());
    command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render"]);
    command.args(["--progress", "*/planted.py:unit", "--for", "60s", "--json", json.to_str().unwrap()]);
    let mut sweep = tool::Running::start(&mut command).unwrap();
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    sweep.signal(rustix::process::Signal::INT).unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let found: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(found["aborted"], "it was stopped", "{}", run.stdout);
    assert!(found["slices"].as_array().unwrap().len() > 8);
    assert!(run.stdout.contains("The experiment ended early."), "{}", run.stdout);
    assert_same_report(&json, &run.stdout);
}

/// Its report is not lost where standard output takes none.
#[test]
fn a_report_that_standard_output_does_not_take_is_on_standard_error() {
    let Some(service) = planted_tiny("shadow") else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" > /dev/full", "sh"]).arg(tool::path().unwrap());
    command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render"]);
    command.args(["--progress", "*/planted.py:unit", "--for", "60s"]);
    let mut sweep = tool::Running::start(&mut command).unwrap();
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    sweep.signal(rustix::process::Signal::INT).unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
    assert!(run.stderr.contains("The experiment ended early."), "{}", run.stderr);
    let last = run.stderr.lines().last().unwrap();
    assert!(last.contains("standard output") && last.contains("No space left on device"), "{last}");
}

#[test]
fn a_service_that_ends_ends_its_sweep() {
    let Some(planted) = planted_tiny("shadow") else { return };
    let mut command = Command::new(tool::path().unwrap());
    command.args(["sweep", "--pid", &planted.pid().to_string(), "-t", "*/planted.py:render"]);
    command.args(["--progress", "*/planted.py:unit", "--for", "60s"]);
    let sweep = tool::Running::start(&mut command).unwrap();
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    drop(planted);
    let run = sweep.finish(PATIENCE + Duration::from_secs(5)).unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("the session is over: the target ended"), "{}", run.stdout);
}

/// A guard that is broken ends it, with a code of its own, and a report.
#[test]
fn a_broken_guard_ends_it() {
    let Some(service) = planted_tiny("shadow") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (json, bad) = (folder.path().join("out.json"), folder.path().join("bad"));
    let guard = format!("command:test ! -e {}", bad.display());
    let mut command = Command::new(tool::path().unwrap());
    command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render"]);
    command.args(["--progress", "*/planted.py:unit", "--for", "60s", "--guard", &guard]);
    command.args(["--json", json.to_str().unwrap()]);
    let sweep = tool::Running::start(&mut command).unwrap();
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    fs::write(&bad, "").unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(6), "{}", run.stderr);
    assert!(run.stderr.contains("a guard ended the experiment: `test ! -e"), "{}", run.stderr);
    let found: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(found["aborted"].as_str().unwrap().starts_with("a guard ended it: "), "{}", run.stdout);
    assert_same_report(&json, &run.stdout);

    // One that does not hold to begin with lets nothing begin.
    let run =
        service.sweep(&["-t", "*/planted.py:render", "--progress", "*/planted.py:unit", "--guard", &guard]);
    assert_eq!(run.status.code(), Some(6), "{}", run.stderr);
    assert!(run.stderr.contains("before the first delay"), "{}", run.stderr);
}

/// `report` prints what `sweep` printed, and the same JSON.
#[track_caller]
pub(crate) fn assert_same_report(json: &std::path::Path, printed: &str) {
    let path = json.to_str().unwrap();
    let again = tool::run(&["report", path], PATIENCE).unwrap();
    assert_eq!(again.stdout, printed);
    let again = tool::run(&["report", "--json", path], PATIENCE).unwrap();
    assert_eq!(again.stdout, fs::read_to_string(json).unwrap());
}

/// Without targets, the program's own functions are tested; a plan delays nothing.
#[test]
fn a_plan_says_how_sure_it_would_be() {
    let Some(service) = planted_tiny("shadow") else { return };
    let run = service.sweep(&["--progress", "*/planted.py:unit", "--plan"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("functions take 1.0 % of the time per unit or more"), "{}", run.stdout);
    assert!(run.stdout.contains("where chips differ by 2 %: by "), "{}", run.stdout);
}
