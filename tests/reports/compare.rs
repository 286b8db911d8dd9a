//! Two reports beside each other, and conditions for continuous integration, by the command.

use std::{sync::LazyLock, time::Duration};

use serde_json::Value;
use speed_bump_experiment::{
    record::Experiment,
    simulated::{Function, Noise, sweep},
};
use speed_bump_testing::tool::{self, Run};

use crate::records::written;

fn experiment(render_own: f64, seed: u64) -> Experiment {
    let of = |sensitivity| Function { calls: 2.0, sensitivity, slack: 0.0 };
    let functions = [("render".to_owned(), of(1.0), render_own), ("score".to_owned(), of(0.0), 2e5)];
    let measured = sweep(1e6, &functions, Noise::White(0.01), Duration::from_secs(60), seed);
    Experiment::new(measured)
}

static BEFORE: LazyLock<Experiment> = LazyLock::new(|| experiment(1e5, 1));
static AFTER: LazyLock<Experiment> = LazyLock::new(|| experiment(3e5, 2));

#[track_caller]
fn report(experiments: &[&Experiment], more: &[&str]) -> Run {
    let files: Vec<_> = experiments.iter().map(|of| written(of)).collect();
    let paths = files.iter().map(|(_, path)| path.to_str().unwrap());
    let all: Vec<&str> = ["report"].into_iter().chain(paths).chain(more.iter().copied()).collect();
    tool::run(&all, Duration::from_secs(60)).unwrap()
}

#[test]
fn what_changed_is_told() {
    let run = report(&[&BEFORE, &AFTER], &[]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("The worth of render changed"), "{}", run.stdout);
    let run = report(&[&BEFORE, &AFTER], &["--json"]);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["schema"], "speed-bump/comparison/1");
    let render = &json["functions"][0];
    assert_eq!(render["name"], "render");
    let worth = &render["worth"];
    let of = |key: &str| worth[key].as_f64().unwrap();
    assert!((of("change") - (of("after") - of("before"))).abs() < 1e-12, "{worth}");
    // The truth: 10 % of a unit before, 30 % after.
    assert!(of("low") < 0.2 && 0.2 < of("high") && of("low") > 0.1, "{worth}");
    let run = report(&[&BEFORE, &AFTER], &["--markdown"]);
    assert!(run.stdout.contains("| function | worth, % |"), "{}", run.stdout);
    assert!(run.stdout.contains("a unit takes "), "{}", run.stdout);
}

#[test]
fn what_is_not_comparable_is_told_of() {
    let mut other = AFTER.clone();
    other.measured.cpu = "another\u{1b}[31m".to_owned();
    other.measured.unit.name = "call".to_owned();
    let run = report(&[&BEFORE, &other], &[]);
    assert!(run.stdout.starts_with("not comparable: the unit was request"), "{}", run.stdout);
    assert!(run.stdout.contains(r"the processor was a processor, and is another\x1b[31m"), "{}", run.stdout);
    assert_eq!(report(&[&BEFORE, &BEFORE], &[]).stdout.matches("not comparable").count(), 0);
}

#[test]
fn conditions_that_hold_fail() {
    let run = report(&[&AFTER], &["--fail-if", "worth_low(render) > 5%", "--fail-if", "worth(score) > 5%"]);
    assert_eq!(run.status.code(), Some(7), "{}", run.stderr);
    assert_eq!(run.stderr, "speed-bump-ebpf: error: worth_low(render) > 5% holds for render\n");
    assert!(run.stdout.starts_with("render (worth at most"), "it is printed all the same: {}", run.stdout);
    let run = report(&[&AFTER], &["--fail-if", "worth(render) < 5%"]);
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    let run = report(&[&BEFORE, &AFTER], &["--fail-if", "worth_change_low(*) > 5%"]);
    assert_eq!(run.status.code(), Some(7), "{}", run.stderr);
    let run = report(&[&AFTER, &BEFORE], &["--fail-if", "worth_change_low(*) > 5%"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
}

/// What holds is told, whatever cannot be answered beside it.
#[test]
fn one_condition_hides_no_other() {
    let gone = ["--fail-if", "worth(gone) > 5%"];
    let run = report(&[&AFTER], &[gone[0], gone[1], "--fail-if", "worth_low(render) > 5%"]);
    assert_eq!(run.status.code(), Some(7), "{}", run.stderr);
    assert!(run.stderr.contains("worth_low(render) > 5% holds for render"), "{}", run.stderr);
    assert!(run.stderr.contains("no function of the report is named gone"), "{}", run.stderr);
}

#[test]
fn what_does_not_stand_is_no_answer() {
    let mut other = AFTER.clone();
    other.measured.cpu = "another".to_owned();
    let run = report(&[&BEFORE, &other], &["--fail-if", "worth_change_low(*) > 5%"]);
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("the two reports are not comparable"), "{}", run.stderr);
}

#[test]
fn what_cannot_be_answered_is_an_error_of_its_own() {
    for (condition, says) in [
        ("worth(nobody) > 5%", "no function of the report is named nobody"),
        ("worth_change(render) > 5%", "a change needs two reports"),
        ("worth(render) > 5", "is not a bound: write a share, like 5%"),
        ("speed(render) > 5", "a report has no `"),
    ] {
        let run = report(&[&AFTER], &["--fail-if", condition]);
        assert_eq!(run.status.code(), Some(2), "{condition}: {}", run.stderr);
        assert!(run.stderr.contains(says), "{condition}: {}", run.stderr);
    }
}

#[test]
fn two_files_make_no_page() {
    let run = report(&[&BEFORE, &AFTER], &["--csv"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(run.stderr.contains("--csv is for one file"), "{}", run.stderr);
}
