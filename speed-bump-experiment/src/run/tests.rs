//! Whole experiments on services that are simulated.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use super::*;
use crate::{
    analysis::{
        contrast::contrasts,
        factor::{Factor, FactorKind},
        findings::{Findings, findings},
        hinge::hinge,
        verdict::Verdict,
    },
    record::By,
    simulated::{Function, Noise, Simulated},
    testing,
};

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
    Options::of(Duration::from_secs(120))
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

fn of<'a>(found: &'a Findings, name: &str) -> &'a Factor {
    found.factors.iter().find(|factor| factor.name == name).unwrap()
}

/// Whether the truth is in the interval, or near it: that of one run in twenty is not.
fn holds(factor: &Factor, truth: f64) -> bool {
    let (low, high) = factor.low.zip(factor.high).expect("it was looked at");
    let half = (high - low) / 2.0;
    low - half <= truth && truth <= high + half
}

#[test]
fn nothing_follows_from_calls_of_which_some_were_missed() {
    let (before, mut measured) = found(&[("render", function(1.0, 0.0), 50)], Noise::White(0.03), 3);
    assert_eq!(of(&before, "render").verdict, Verdict::Matters);
    measured.missed_calls.push("process 7: for 12.0 % of the time another hook was there".to_owned());
    let found = findings(&measured);
    assert_eq!(of(&found, "render").verdict, Verdict::Undecided);
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

/// And so are the files that they are in.
#[test]
fn on_one_saturated_thread_files_are_worth_what_their_functions_take() {
    let names: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
    let functions: Vec<_> = names.iter().map(|name| (name.as_str(), function(1.0, 0.0), 20)).collect();
    let mut measured = testing::measured(&functions);
    for candidate in measured.candidates.iter_mut().skip(30) {
        candidate.file = "/srv/page.py".into();
    }
    let of_service = functions.iter().map(|(_, function, _)| *function).collect();
    let mut service = Simulated::new(MS, of_service, Noise::White(0.02), 4);
    let measured = run(&mut service, &options(), measured, &mut |_, _| {});
    let found = findings(&measured);
    for (name, share) in [("/srv/app.py (30 functions)", 0.6), ("/srv/page.py (10 functions)", 0.2)] {
        let file = of(&found, name);
        assert_eq!((file.kind, file.verdict), (FactorKind::Group, Verdict::Matters), "{file:#?}");
        let (low, high) = (file.worth_low.unwrap(), file.worth_high.unwrap());
        assert!(low - 0.05 <= share && share <= high + 0.05, "{file:#?}");
    }
    // Each function is told of all the same.
    let single = found.factors.iter().filter(|factor| factor.kind == FactorKind::Python);
    assert_eq!(single.count(), 40, "{}", found.verdict);
}

/// The functions that were not looked at alone are compared with slices without delays, and not only with
/// each other: where most of them show, that is not what they have in common with all.
#[test]
fn what_most_functions_show_is_seen_in_each() {
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
            let factor = of(&found, name);
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
    let options = Options { total: Duration::from_secs(60), ..options() };
    let measured = run(&mut service, &options, measured, &mut |_, _| {});
    // Parts of a unit are done, as simulated ones are not whole.
    assert!(measured.slices.iter().all(|slice| slice.units < 1.0));
}

#[test]
fn functions_that_were_looked_at_among_others_are_shown_not_to_matter() {
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
fn functions_of_a_class_are_looked_at_together() {
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
    // Each has its part of the time, and of the delays.
    let slice =
        measured.of_phase(PhaseKind::Confirm).find(|of| of.treatment == Treatment::Group { group: 0 });
    let doses: Vec<u64> = slice.unwrap().doses.iter().map(|(_, dose)| dose.0).collect();
    let ratio = doses[0] as f64 / doses[1] as f64;
    assert!((2.9..3.1).contains(&ratio), "{doses:?}");
}

#[test]
fn doses_are_those_that_are_asked_for() {
    let functions = [("a", function(1.0, 0.0), 300), ("b", function(0.0, 0.0), 300)];
    let options = Options { doses: vec![0.03, 0.06], ..options() };
    let (found, measured) = found_with(&functions, Noise::White(0.01), 2, &options);
    assert_eq!(of(&found, "a").verdict, Verdict::Matters);
    let doses = measured.of_phase(PhaseKind::Confirm).flat_map(|slice| &slice.doses);
    let mut doses: Vec<u64> = doses.map(|(_, dose)| dose.0 / 1_000).collect();
    doses.sort_unstable();
    doses.dedup();
    // Of a unit of about a millisecond, over five calls.
    assert!(doses.iter().all(|us| (5..=7).contains(us) || (11..=13).contains(us)), "{doses:?}");
}

#[test]
fn functions_that_share_slack_are_looked_at_together() {
    for seed in 0..3 {
        let mut measured =
            testing::measured(&[("a", function(0.0, 0.0), 100), ("b", function(0.0, 0.0), 90)]);
        measured.seed = seed;
        measured.rules.closed_loop = true;
        let both = vec![function(1.0, 0.0); 2];
        let mut service = Simulated::new(MS, both, Noise::White(0.01), seed);
        service.share_slack(0.5 * MS);
        // Calls may not be delayed by as much as would show.
        let options = Options { longest_call: Nanos(80_000), ..options() };
        let measured = run(&mut service, &options, measured, &mut |_, _| {});
        let found = findings(&measured);
        let joined = &measured.groups[0];
        assert_eq!((joined.name.as_str(), joined.shares_slack), ("a + b", true));
        let group = of_group(&found);
        let reason = group.reason.as_deref().unwrap();
        assert!(reason.starts_with("they share slack: together they are hidden up to"), "{group:#?}");
        let slices = measured.of_phase(PhaseKind::Confirm);
        let blocks = contrasts(slices, Treatment::Group { group: 0 }, u32::MAX, By::Throughput);
        let bend = hinge(&blocks).unwrap();
        assert!(bend.low <= 0.5 * MS && 0.5 * MS <= bend.high, "{bend:?} {blocks:#?}");
        assert_eq!(of(&found, "a").verdict, Verdict::DoesNotMatter);
    }
}

#[test]
fn what_matters_only_together_is_said_to() {
    // None of them shows a tenth of its delay, all together half of it, or a third; 0.5 to 0.8 % each.
    let six = |seed| [(seed, 0.09, 60, 2), (seed, 0.09, 80, 2), (seed, 0.06, 110, 5)];
    for (seed, sensitivity, own, least) in (0..4).flat_map(six) {
        let functions: Vec<_> =
            ["a", "b", "c", "d", "e", "f"].map(|name| (name, function(sensitivity, 0.0), own)).into();
        let (found, measured) = found(&functions, Noise::White(0.01), seed);
        let of: Vec<_> = found.factors.iter().map(|of| (of.name.as_str(), of.verdict)).collect();
        assert!(measured.groups.iter().all(|group| group.shares_slack), "{of:?}");
        let wrong = |verdict: Verdict| matches!(verdict, Verdict::Undecided | Verdict::Matters);
        assert!(!of.iter().any(|(_, verdict)| wrong(*verdict)), "{of:?}");
        // Those that matter together are those of a group.
        let jointly = found.factors.iter().filter(|of| of.verdict == Verdict::Jointly);
        let (groups, single): (Vec<_>, Vec<_>) = jointly.partition(|of| of.kind == FactorKind::Group);
        assert!(!groups.is_empty() && single.len() >= least, "{of:?}");
        assert!(single.iter().all(|of| groups.iter().any(|group| group.name.contains(&of.name))), "{of:?}");
        assert!(found.verdict.starts_with("No function is shown to matter alone; "), "{}", found.verdict);
    }
}

/// What together shows is told of own times as they are: most of it is of one that does not show.
#[test]
fn what_matters_together_is_worth_what_its_functions_are() {
    for seed in 0..4 {
        let functions = [
            ("a", function(0.0, 0.0), 500),
            ("b", function(0.3, 0.0), 12),
            ("c", function(0.3, 0.0), 12),
            ("d", function(0.3, 0.0), 12),
        ];
        let (found, _) = found(&functions, Noise::White(0.01), seed);
        // 1.1 % in all.
        let worth = found.factors.iter().filter_map(|of| of.worth_low);
        assert!(worth.into_iter().all(|low| low < 0.011), "{found:#?}");
    }
}

/// Sixteen of them: a delay in each worker shows in a unit for a sixteenth.
#[test]
fn what_little_shows_of_matters_where_workers_are_many() {
    let functions = [
        ("render", function(1.0 / 16.0, 0.0), 8_000),
        ("hidden", function(0.0, 0.0), 500),
        ("small", function(1.0 / 16.0, 0.0), 80),
    ];
    for seed in 0..3 {
        let found = found(&functions, Noise::White(0.005), seed).0;
        let render = of(&found, "render");
        assert_eq!(render.verdict, Verdict::Matters, "{render:#?}");
        assert!(render.worth_low.unwrap() < 0.5 && 0.5 < render.worth_high.unwrap(), "{render:#?}");
        for little in ["hidden", "small"] {
            assert_eq!(of(&found, little).verdict, Verdict::DoesNotMatter, "{found:#?}");
        }
    }
}

/// The same of those that were looked at among others.
#[test]
fn what_seems_to_be_worth_it_is_not_dismissed_from_the_screen() {
    let names: Vec<String> = (0..31).map(|number| format!("f{number}")).collect();
    let of = |name| (name, function(1.0 / 16.0, 0.0), 300);
    let functions: Vec<_> = names.iter().map(|name| of(name.as_str())).collect();
    let (found, measured) = found(&functions, Noise::White(0.005), 1);
    assert!(measured.of_phase(PhaseKind::Screen).next().is_some());
    for factor in found.factors.iter().filter(|of| of.kind != FactorKind::Group) {
        let seems_worth_it = factor.low.unwrap() > 0.0 && factor.worth.unwrap() >= 0.01;
        assert!(!seems_worth_it || factor.verdict != Verdict::DoesNotMatter, "{factor:#?}");
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
    assert_eq!(of(&found, "a").verdict, Verdict::Matters);
}

fn of_group(found: &Findings) -> &Factor {
    found.factors.iter().find(|factor| factor.kind == FactorKind::Group).unwrap()
}
