//! Whole experiments on simulated services.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use super::*;
use crate::{
    analysis::{
        factor::{Factor, FactorKind},
        findings::{Findings, findings},
        verdict::Verdict,
    },
    record::{By, Mark},
    simulated::{Function, Noise, Simulated},
    testing,
};

mod bounded;
mod quantiles;
mod time;

const MS: f64 = 1e6;

/// A function that is called five times a unit.
fn function(sensitivity: f64, slack: f64) -> Function {
    Function { calls: 5.0, sensitivity, slack }
}

/// What an experiment of two minutes finds in a service whose units take 1 ms.
fn found(functions: &[(&str, Function, u64)], noise: Noise, seed: u64) -> (Findings, Measured) {
    found_with(functions, noise, seed, &options())
}

fn options() -> Options {
    Options { quick: true, ..Options::new(Duration::from_secs(120)) }
}

fn found_with(
    functions: &[(&str, Function, u64)],
    noise: Noise,
    seed: u64,
    options: &Options,
) -> (Findings, Measured) {
    let mut measured = testing::measured(functions);
    measured.seed = seed;
    let of = functions.iter().map(|(_, function, _)| *function).collect();
    let mut service = Simulated::new(MS, of, noise, seed);
    let measured = run(&mut service, options, measured, &mut |_, _| {});
    (findings(&measured), measured)
}

fn factor<'a>(found: &'a Findings, name: &str) -> &'a Factor {
    found.factors.iter().find(|factor| factor.name == name).unwrap()
}

/// Whether the truth is in the interval, or near it: in one run of twenty it is not in it.
fn holds(factor: &Factor, truth: f64) -> bool {
    let (low, high) = factor.low.zip(factor.high).expect("it was tested");
    let half = (high - low) / 2.0;
    low - half <= truth && truth <= high + half
}

#[test]
fn nothing_follows_from_calls_of_which_some_were_missed() {
    let (before, mut measured) = found(&[("render", function(1.0, 0.0), 50)], Noise::White(0.03), 3);
    assert_eq!(factor(&before, "render").verdict, Verdict::Matters);
    measured.missed_calls.push("process 7: for 12.0 % of the time another hook was there".to_owned());
    let found = findings(&measured);
    assert_eq!(factor(&found, "render").verdict, Verdict::Undecided);
    assert!(!found.validity.holds);
    assert!(found.validity.problems[0].text.contains("12.0 % of the time"), "{:?}", found.validity);
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
        let render = factor(&found, "render");
        assert_eq!(render.verdict, Verdict::Matters, "{found:#?}");
        assert!(holds(render, 1.0), "{render:#?}");
        let score = factor(&found, "score");
        assert_eq!(score.verdict, Verdict::DoesNotMatter, "{score:#?}\n{:#?}", measured.phases);
        assert!(holds(score, 0.0), "{score:#?}");
        let slack = score.slack_ns.unwrap();
        assert!((0.2 * MS..1.6 * MS).contains(&slack), "{slack}");
        // The user named the function.
        assert_eq!(factor(&found, "tiny").verdict, Verdict::DoesNotMatter);
        assert_eq!(factor(&found, "sleeping").verdict, Verdict::Dismissed);
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
    assert!(measured.of_phase(PhaseKind::Test).next().is_some());
}

#[test]
fn three_of_a_hundred_are_found() {
    let names: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
    let functions: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let matters = [7, 50, 90].contains(&number);
            (name.as_str(), function(if matters { 1.0 } else { 0.0 }, 0.0), 20)
        })
        .collect();
    let (found, measured) = found(&functions, Noise::White(0.03), 2);
    let matter: Vec<_> = found.factors.iter().filter(|of| of.verdict == Verdict::Matters).collect();
    let mut names: Vec<_> = matter.iter().map(|factor| factor.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["f50", "f7", "f90"], "{:#?} {}", measured.phases, found.verdict);
}

/// Functions are compared with chips without their delay, and not only with each other: an effect that most
/// functions have is not taken for the baseline.
#[test]
fn an_effect_that_most_functions_have_is_found_in_each() {
    let names: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
    let shows = |number: u64| !number.is_multiple_of(4);
    let functions: Vec<_> = (0..)
        .zip(&names)
        .map(|(number, name)| {
            let sensitivity = if shows(number) { 1.0 } else { 0.0 };
            (name.as_str(), function(sensitivity, 0.0), 55 - number)
        })
        .collect();
    for seed in 0..3 {
        let (found, _) = found(&functions, Noise::White(0.01), seed);
        for (number, name) in (0..).zip(&names) {
            let factor = factor(&found, name);
            let wrong = if shows(number) { Verdict::DoesNotMatter } else { Verdict::Matters };
            assert_ne!(factor.verdict, wrong, "{factor:#?}");
            assert!(holds(factor, if shows(number) { 1.0 } else { 0.0 }), "{factor:#?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_slices() {
    let functions = [("a", function(1.0, 0.0), 300), ("b", function(0.0, 0.0), 200)];
    let [one, other] = [(); 2].map(|()| found(&functions, Noise::White(0.02), 5).1);
    assert_eq!(one, other);
}

#[test]
fn units_are_not_slowed_down_by_more_than_allowed() {
    // Each delay of the function shows three times.
    let functions = [("a", function(3.0, 0.0), 300)];
    let (found, measured) = found(&functions, Noise::White(0.01), 5);
    // Means of eight slices: a single one is off by chance.
    let times: Vec<f64> = measured.slices.iter().map(|slice| slice.time_per_unit(By::Throughput)).collect();
    let over = times.windows(8).filter(|times| times.iter().sum::<f64>() / 8.0 > 1.45 * MS);
    assert_eq!(over.count(), 0);
    assert_eq!(factor(&found, "a").verdict, Verdict::Matters, "{found:#?}");
}

#[test]
fn what_cannot_be_delayed_little_enough_is_not() {
    let functions =
        [("a", function(1.0, 0.0), 300), ("often", Function { calls: 9_000.0, ..function(1.0, 0.0) }, 400)];
    let (found, measured) = found(&functions, Noise::White(0.01), 5);
    assert_eq!(factor(&found, "a").verdict, Verdict::Matters);
    let often = factor(&found, "often");
    assert_eq!(often.verdict, Verdict::Undecided);
    assert!(often.reason.as_deref().unwrap().starts_with("it is called so often"), "{often:#?}");
    assert!(measured.slices.iter().all(|slice| slice.doses.iter().all(|(candidate, _)| *candidate == 0)));
}

#[test]
fn a_service_without_load_has_no_units() {
    let mut measured = testing::measured(&[("a", function(1.0, 0.0), 300)]);
    measured.unit.name = "call of handle".to_owned();
    let mut service = Simulated::new(1e18, vec![function(1.0, 0.0)], Noise::White(0.0), 1);
    let options = Options { total: Duration::from_secs(60), ..options() };
    let measured = run(&mut service, &options, measured, &mut |_, _| {});
    // Simulated units are not whole: parts of them are done.
    assert!(measured.slices.iter().all(|slice| slice.units < 1.0));
}

#[test]
fn functions_that_were_tested_among_others_are_shown_not_to_matter() {
    let names: Vec<String> = (0..31).map(|number| format!("f{number}")).collect();
    let functions: Vec<_> = (0..)
        .zip(&names)
        .map(|(number, name)| {
            let matters = number == 3 || number == 20;
            (name.as_str(), function(if matters { 1.0 } else { 0.0 }, 0.0), 20)
        })
        .collect();
    let (found, measured) = found(&functions, Noise::White(0.02), 4);
    for factor in found.factors.iter().filter(|factor| factor.kind != FactorKind::Group) {
        let matters = ["f3", "f20"].contains(&factor.name.as_str());
        let expected = if matters { Verdict::Matters } else { Verdict::DoesNotMatter };
        assert_eq!(factor.verdict, expected, "{factor:#?}\n{:#?}", measured.phases);
    }
}

#[test]
fn functions_of_a_class_are_delayed_together() {
    let functions = [
        ("Parser.read", function(0.0, 0.0), 100),
        ("Parser.check", function(0.0, 0.0), 5),
        ("Page.render", function(1.0, 0.0), 60),
        ("Page.head", function(1.0, 0.0), 20),
    ];
    let options = Options { group: Some(GroupBy::Class), ..options() };
    let (found, measured) = found_with(&functions, Noise::White(0.01), 2, &options);
    let verdicts: Vec<_> = found.factors.iter().map(|of| (of.name.as_str(), of.verdict)).collect();
    let expected = [
        ("Page (/srv/app.py) (2 functions)", Verdict::Matters),
        ("Parser (/srv/app.py) (2 functions)", Verdict::DoesNotMatter),
    ];
    assert_eq!(verdicts, expected, "{}\n{:#?}", found.verdict, found.validity);
    assert!(holds(&found.factors[0], 1.0), "{found:#?}");
    // Each function has its part of the time, and of the delays.
    let slice = measured.of_phase(PhaseKind::Test).find(|of| of.doses.iter().any(|(number, _)| *number == 0));
    let doses: Vec<u64> = slice.unwrap().doses.iter().map(|(_, dose)| dose.0).collect();
    let ratio = doses[0] as f64 / doses[1] as f64;
    assert!((19.0..21.0).contains(&ratio), "{doses:?}");
}

#[test]
fn doses_are_those_that_are_asked_for() {
    let functions = [("a", function(1.0, 0.0), 300), ("b", function(0.0, 0.0), 300)];
    let options = Options { doses: vec![0.03, 0.06], ..options() };
    let (found, measured) = found_with(&functions, Noise::White(0.01), 2, &options);
    assert_eq!(factor(&found, "a").verdict, Verdict::Matters);
    let doses = measured.of_phase(PhaseKind::Test).flat_map(|slice| &slice.doses);
    let mut doses: Vec<u64> = doses.map(|(_, dose)| dose.0 / 1_000).collect();
    doses.sort_unstable();
    doses.dedup();
    // Doses are shares of a unit of about a millisecond, divided among five calls.
    assert!(doses.iter().all(|us| (5..=7).contains(us) || (11..=13).contains(us)), "{doses:?}");
}

/// With sixteen workers, a sixteenth of a delay in each of them shows in a unit.
#[test]
fn a_function_of_many_workers_matters_although_little_of_its_delay_shows() {
    let functions = [
        ("render", function(1.0 / 16.0, 0.0), 8_000),
        ("hidden", function(0.0, 0.0), 500),
        ("small", function(1.0 / 16.0, 0.0), 80),
    ];
    for seed in 0..3 {
        let found = found(&functions, Noise::White(0.005), seed).0;
        let render = factor(&found, "render");
        assert_eq!(render.verdict, Verdict::Matters, "{render:#?}");
        assert!(render.worth_low.unwrap() < 0.5 && 0.5 < render.worth_high.unwrap(), "{render:#?}");
        for little in ["hidden", "small"] {
            assert_eq!(factor(&found, little).verdict, Verdict::DoesNotMatter, "{found:#?}");
        }
    }
}

#[test]
fn a_service_that_warms_up_is_waited_for() {
    let functions = [("a", function(1.0, 0.0), 300), ("b", function(0.0, 0.0), 200)];
    let (found, measured) = found(&functions, Noise::WarmUp(0.01), 5);
    let census = &measured.phases[0];
    assert!(census.outcome.contains("; it had settled in round "), "{census:?}");
    let unsettled = measured.slices.iter().filter(|slice| slice.marks.contains(&Mark::Unsettled));
    assert!(unsettled.count() > 8);
    assert!(found.validity.holds, "{:?}", found.validity);
    assert_eq!(factor(&found, "a").verdict, Verdict::Matters);
}
