//! Whole experiments on services that are simulated.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::experiment::{
    analysis::{
        factor::{Factor, FactorKind},
        findings::{Findings, findings},
        verdict::Verdict,
    },
    record::By,
    simulated::{Function, Noise, Simulated},
    testing,
};

const MS: f64 = 1e6;

/// A function that is called five times a unit.
fn function(sensitivity: f64, slack: f64) -> Function {
    Function { calls: 5.0, sensitivity, slack }
}

/// What an experiment of two minutes finds in a service whose units take 1 ms.
fn found(functions: &[(&str, Function, u64)], noise: Noise, seed: u64) -> (Findings, Measured) {
    let mut measured = testing::measured(functions);
    measured.seed = seed;
    let of = functions.iter().map(|(_, function, _)| *function).collect();
    let mut service = Simulated::new(MS, of, noise, seed);
    let options = Options {
        total: Duration::from_secs(120),
        slice: None,
        per_function: false,
        longest_call: Nanos(10_000_000),
        bounds: Vec::new(),
        runs: false,
    };
    let measured = run(&mut service, &options, measured, &mut |_, _| {});
    (findings(&measured), measured)
}

fn of<'a>(found: &'a Findings, name: &str) -> &'a Factor {
    found.factors.iter().find(|factor| factor.name == name).unwrap()
}

/// Whether the truth is in the interval, or near it: that of one run in twenty is not.
fn holds(factor: &Factor, truth: f64) -> bool {
    let (low, high) = (factor.low.unwrap(), factor.high.unwrap());
    let half = (high - low) / 2.0;
    low - half <= truth && truth <= high + half
}

#[test]
fn the_hot_function_in_the_shadow_does_not_matter_and_the_cold_one_does() {
    let functions = [
        ("score", function(1.0, 0.9 * MS), 500),
        ("render", function(1.0, 0.0), 50),
        ("tiny", function(1.0, 0.0), 5),
        ("sleeping", Function { calls: 0.0, ..function(1.0, 0.0) }, 0),
    ];
    for seed in 0..5 {
        let (found, measured) = found(&functions, Noise::White(0.03), seed);
        let render = of(&found, "render");
        assert_eq!(render.verdict, Verdict::Matters, "{found:#?}");
        assert!(holds(render, 1.0), "{render:#?}");
        let score = of(&found, "score");
        assert_eq!(score.verdict, Verdict::DoesNotMatter, "{score:#?}\n{:#?}", measured.phases);
        assert!(holds(score, 0.0), "{score:#?}");
        let slack = score.slack_ns.unwrap();
        assert!((0.2 * MS..1.1 * MS).contains(&slack), "{slack}");
        assert_eq!(of(&found, "tiny").verdict, Verdict::Dismissed);
        assert_eq!(of(&found, "sleeping").verdict, Verdict::Dismissed);
        assert_eq!(found.open_loop, Some(false));
        assert!(found.validity.holds);
        assert!(found.verdict.starts_with("render (worth at most"), "{}", found.verdict);
        let last = measured.phases.last().unwrap();
        assert_eq!((last.kind, measured.aborted), (PhaseKind::Recover, None));
    }
}

#[test]
fn nothing_is_said_where_nothing_reacts() {
    let functions = [("a", function(0.0, 0.0), 300), ("b", function(0.0, 0.0), 200)];
    let (found, measured) = found(&functions, Noise::White(0.02), 1);
    assert!(found.factors.iter().all(|factor| factor.verdict == Verdict::Undecided), "{found:#?}");
    assert!(found.verdict.starts_with("No verdict: no function is shown to matter"), "{}", found.verdict);
    assert_eq!(found.open_loop, None);
    assert!(measured.of_phase(PhaseKind::Confirm).next().is_none());
}

#[test]
fn three_of_a_thousand_are_found() {
    let names: Vec<String> = (0..1_000).map(|number| format!("f{number}")).collect();
    let functions: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let matters = [7, 500, 900].contains(&number);
            (name.as_str(), function(if matters { 1.0 } else { 0.0 }, 0.0), 20)
        })
        .collect();
    let (found, measured) = found(&functions, Noise::White(0.03), 2);
    let matter: Vec<_> = found.factors.iter().filter(|of| of.verdict == Verdict::Matters).collect();
    let mut names: Vec<_> = matter.iter().map(|factor| factor.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["f500", "f7", "f900"], "{:#?} {}", measured.phases, found.verdict);
}

#[test]
fn on_one_saturated_thread_functions_are_worth_what_they_take() {
    let names: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
    let functions: Vec<_> =
        (0..).zip(&names).map(|(number, name)| (name.as_str(), function(1.0, 0.0), 55 - number)).collect();
    let (found, measured) = found(&functions, Noise::White(0.02), 3);
    let screen = measured.phases.iter().find(|phase| phase.kind == PhaseKind::Screen).unwrap();
    assert!(screen.outcome.starts_with("all delays show alike"), "{screen:?}");
    let first = &found.factors[0];
    assert_eq!(first.verdict, Verdict::Matters, "{first:#?}");
    let single = found.factors.iter().filter(|factor| factor.kind != FactorKind::Group);
    let worth: Vec<f64> = single.filter_map(|factor| factor.worth).collect();
    assert!(worth.is_sorted_by(|a, b| a >= b) && worth.len() == 40, "{worth:?}");
    let by_own = |name: &str| of(&found, name).own_ns_per_unit.unwrap();
    assert!(by_own("f0") > by_own("f39"));
    assert_eq!(of(&found, "f39").verdict, Verdict::Jointly);
}

#[test]
fn the_same_seed_gives_the_same_slices() {
    let functions = [("a", function(1.0, 0.0), 300), ("b", function(0.0, 0.0), 200)];
    let [one, other] = [(); 2].map(|()| found(&functions, Noise::White(0.02), 5).1);
    assert_eq!(one, other);
}

#[test]
fn units_are_not_slowed_down_by_more_than_allowed() {
    // Its delay shows three times.
    let functions = [("a", function(3.0, 0.0), 300)];
    let (found, measured) = found(&functions, Noise::White(0.01), 5);
    let over = measured
        .slices
        .iter()
        .filter(|slice| slice.time_per_unit(By::Throughput) > 1.45 * MS && !slice.guarded);
    assert_eq!(over.count(), 0);
    assert!(measured.slices.iter().filter(|slice| slice.guarded).count() > 0);
    assert_eq!(of(&found, "a").verdict, Verdict::Matters, "{found:#?}");
}

#[test]
fn what_cannot_be_delayed_little_enough_is_not() {
    let functions =
        [("a", function(1.0, 0.0), 300), ("often", Function { calls: 9_000.0, ..function(1.0, 0.0) }, 400)];
    let (found, measured) = found(&functions, Noise::White(0.01), 5);
    assert_eq!(of(&found, "a").verdict, Verdict::Matters);
    let often = of(&found, "often");
    assert_eq!(often.verdict, Verdict::Undecided);
    assert!(often.reason.as_deref().unwrap().starts_with("it is called so often"), "{often:#?}");
    assert!(measured.slices.iter().all(|slice| slice.doses.iter().all(|(candidate, _)| *candidate == 0)));
}

#[test]
fn a_service_without_load_has_no_units() {
    let mut measured = testing::measured(&[("a", function(1.0, 0.0), 300)]);
    measured.unit.name = "call of handle".to_owned();
    let mut service = Simulated::new(1e18, vec![function(1.0, 0.0)], Noise::White(0.0), 1);
    let options = Options {
        total: Duration::from_secs(60),
        slice: None,
        per_function: false,
        longest_call: Nanos(10_000_000),
        bounds: Vec::new(),
        runs: false,
    };
    let measured = run(&mut service, &options, measured, &mut |_, _| {});
    // Parts of a unit are done, as simulated ones are not whole.
    assert!(measured.slices.iter().all(|slice| slice.units < 1.0));
}
