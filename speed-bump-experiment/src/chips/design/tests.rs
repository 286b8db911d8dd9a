#![allow(clippy::unwrap_used)]

use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::chips::{
    sweep::{Plan, RULES, Swept, sweep},
    world::{Long, Pace, Service, Simulation as _, World, normal},
};

/// Units of 10 ms.
fn swept(sensitivities: &[f64], own: &[f64], pace: Pace, seed: u64) -> Swept {
    swept_with(sensitivities, own, pace, 0.5, seed)
}

/// [`swept`], if `carry_over` units after a change of doses still have the doses from before it.
fn swept_with(sensitivities: &[f64], own: &[f64], pace: Pace, carry_over: f64, seed: u64) -> Swept {
    let service = Service {
        sensitivities: sensitivities.to_vec(),
        own: own.to_vec(),
        unit: 0.010,
        deviation: 0.10,
        carry_over,
        pace,
        slack: None,
        heavy: None,
    };
    let asked: Vec<Asked> =
        own.iter().map(|&share| Asked { share: Some(share), thread: 0, is_first: true }).collect();
    let plan = Plan::new(service.unit, 240.0);
    sweep(&mut World::new(service, plan.total, seed), &asked, plan, seed)
}

/// The verdicts, and the second of the last one.
fn verdicts(swept: &Swept) -> (Vec<Verdict>, f64) {
    let verdicts: Vec<(Verdict, f64)> =
        (0..swept.found.len()).map(|function| swept.verdict(function).unwrap()).collect();
    let last = verdicts.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    (verdicts.into_iter().map(|(verdict, _)| verdict).collect(), last)
}

#[test]
fn one_of_five_functions_is_found_on_a_machine_of_two_speeds() {
    for seed in 0..4 {
        let swept = swept(&[1.0, 0.0, 0.0, 0.0, 0.0], &[0.1, 0.05, 0.05, 0.05, 0.05], Pace::TwoSpeeds, seed);
        let (verdicts, last) = verdicts(&swept);
        assert_eq!(verdicts[0], Verdict::Matters);
        assert_eq!(verdicts[1..], [Verdict::DoesNot; 4]);
        assert!(last < 90.0, "{last}");
        assert!(swept.felt.0 <= 0.2 + 1e-9, "{:?}", swept.felt);
    }
}

#[test]
fn of_twenty_functions_without_effect_none_matters() {
    for seed in 0..4 {
        let (verdicts, last) = verdicts(&swept(&[0.0; 20], &[0.05; 20], Pace::Bursts, seed));
        assert_eq!(verdicts, [Verdict::DoesNot; 20]);
        assert!(last < 150.0, "{last}");
    }
}

#[test]
fn all_functions_of_a_saturated_thread_matter() {
    let own = [
        0.2, 0.17, 0.09, 0.08, 0.075, 0.065, 0.055, 0.05, 0.05, 0.035, 0.033, 0.028, 0.02, 0.017, 0.015,
        0.015, 0.015, 0.015,
    ];
    for seed in 0..4 {
        let swept = swept(&[1.0; 18], &own, Pace::TwoSpeeds, seed);
        let (verdicts, last) = verdicts(&swept);
        assert_eq!(verdicts, [Verdict::Matters; 18]);
        assert!(last < 120.0, "{last}");
        assert!(swept.felt.0 <= 0.2 + 1e-9, "{:?}", swept.felt);
    }
}

#[test]
fn what_shows_in_units_of_the_next_chip_counts() {
    let mean = |carry_over: f64| {
        let one = |seed: u64| {
            let own = [0.1, 0.05, 0.05, 0.05, 0.05];
            let swept = swept_with(&[1.0, 0.0, 0.0, 0.0, 0.0], &own, Pace::Steady, carry_over, seed);
            swept.found[0].estimated.unwrap().sensitivity
        };
        (0..20).map(one).sum::<f64>() / 20.0
    };
    let found = [0.5, 3.0, 6.0].map(mean);
    assert!(found.iter().all(|of| (0.85..1.1).contains(of)), "{found:?}");
}

/// For each of four functions, the chips in which it has a dose. Their sensitivities are these, and the last
/// two functions are not the service's own code.
fn chips_on(sensitivities: [f64; 4], chips: usize) -> Vec<Vec<usize>> {
    let asked = (0..4).map(|at| Asked { share: Some(0.1), thread: 0, is_first: at < 2 }).collect::<Vec<_>>();
    let mut design = Design::new(asked, Rules { min_chips: 20, ..RULES });
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let mut on = vec![Vec::new(); 4];
    for chip in 0..chips {
        let doses = design.draw(&mut random);
        let mut time = 1.0 + 0.1 * normal(&mut random);
        for (at, dose) in &doses {
            on[*at].push(chip);
            time += sensitivities[*at] * dose;
            assert!(*dose <= RULES.max_slowdown + 1e-9);
        }
        let delivered = doses.iter().map(|(_, dose)| (*dose, *dose)).collect();
        design.add(Chip { time, doses, delivered, follows: chip > 0, ..Chip::default() });
    }
    on
}

#[test]
fn the_services_own_code_has_the_first_turn() {
    // The first two stay undecided for longer than their turn takes. Then all have a dose.
    let on = chips_on([0.15, 0.15, 1.0, 0.0], 160);
    for at in 0..2 {
        assert!(on[at].iter().filter(|chip| **chip < 80).count() > 10, "{on:?}");
        assert!(on[at].iter().any(|chip| *chip > 80), "{on:?}");
    }
    for at in 2..4 {
        assert!(on[at].first().is_some_and(|chip| (80..100).contains(chip)), "{on:?}");
    }
}

#[test]
fn the_others_do_not_wait_for_what_is_decided() {
    let asked = (0..2).map(|at| Asked { share: Some(0.001), thread: 0, is_first: at == 0 });
    let mut design = Design::new(asked.collect(), Rules { min_chips: 40, ..RULES });
    let mut random = Pcg64Mcg::seed_from_u64(6);
    let mut first = None;
    for chip in 0..160 {
        let doses = design.draw(&mut random);
        if doses.iter().any(|(at, _)| *at == 1) {
            first.get_or_insert(chip);
        }
        let delivered = doses.iter().map(|(_, dose)| (*dose, *dose)).collect();
        let time = 1.0 + 0.02 * normal(&mut random);
        design.add(Chip { time, doses, delivered, follows: chip > 0, ..Chip::default() });
    }
    let decided = design.found()[0].verdict.unwrap().1;
    assert!(first.is_some_and(|chip| (decided..decided + 30).contains(&chip)), "{first:?} {decided}");
    assert!(decided < 120, "{decided}");
}

/// The mean estimates of functions that a request calls at its beginning, at any time, at its end, and never.
/// Requests last for this many chips. `is_known`: the design knows that. Each function has its dose in half
/// of all chips: if doses depended on noisy estimates, those that are too high by chance would stay so.
fn of_long_requests(chips: f64, is_known: bool) -> [f64; 4] {
    const RUNS: u64 = 8;
    let (latency, dose) = (0.3, 0.2);
    let seconds = latency / chips;
    let mut sums = [0.0; 4];
    for seed in 0..RUNS {
        let mut service = Long::new(50.0, latency, Pace::Steady, 400.0, seed);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let asked = vec![Asked { share: None, thread: 0, is_first: true }; sums.len()];
        let rules = Rules { min_chips: usize::MAX, ..RULES };
        let mut design = Design::new(asked, rules).with_latency(is_known.then_some(latency * 1e9));
        while service.now() < 300.0 {
            let is_on = [(); 4].map(|()| random.random_bool(0.5));
            let time = service.chip(&is_on.map(|is| if is { dose } else { 0.0 }), seconds, 0.0);
            let doses: Vec<(usize, f64)> = (0..4).filter(|at| is_on[*at]).map(|at| (at, dose)).collect();
            let delivered = doses.iter().map(|(_, dose)| (*dose, *dose)).collect();
            let (span, units, latencies) = (seconds * 1e9, service.units(), Counts::new());
            let time = time.unwrap_or(1.0);
            design.add(Chip { time, latencies, units, span, doses, delivered, follows: true });
        }
        design.estimate();
        for (sum, found) in sums.iter_mut().zip(design.found()) {
            *sum += found.estimated.unwrap().sensitivity;
        }
    }
    sums.map(|sum| sum / RUNS as f64)
}

#[test]
fn delays_count_to_requests_that_last_for_several_chips() {
    for chips in [0.25, 2.0, 3.0, 5.0] {
        let [found, before] = [true, false].map(|is_known| of_long_requests(chips, is_known));
        let shown = format!("{chips} chips: {found:.2?}; by the chip that a request ends in: {before:.2?}");
        println!("{shown}");
        for (found, truth) in found.iter().zip([1.0, 1.0, 1.0, 0.0]) {
            assert!((found - truth).abs() < if chips < 1.0 { 0.2 } else { 0.1 }, "{shown}");
        }
        // Otherwise delays at the beginning of a request do not show in the chip in which it ends.
        assert!(chips < 1.0 || before[0] < 0.3, "{shown}");
    }
}

/// One chip in eight has a rare part of a unit, which takes half a chip's time. All chips call the first
/// function, and the rare part calls the second.
fn estimates_of_parts(parts_differ: bool) -> [f64; 2] {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let asked = Asked { share: Some(0.1), thread: 0, is_first: true };
    let mut design = Design::new(vec![asked; 2], RULES).with_parts_of_units(parts_differ);
    for chip in 0..1_600 {
        let is_rare = chip % 8 == 3;
        let drawn: Vec<(usize, f64)> =
            (0..2).filter(|_| random.random::<bool>()).map(|function| (function, 0.1)).collect();
        let calls = |function| match (function, is_rare) {
            (0, _) => 1.0,
            (_, true) => 8.0,
            (_, false) => 0.0,
        };
        let added: Vec<f64> = drawn.iter().map(|(function, dose)| dose * calls(*function)).collect();
        let part = if is_rare { 0.5 } else { 0.0 };
        let time = 1.0 + part + added.iter().sum::<f64>() + 0.03 * normal(&mut random);
        let delivered = added.iter().map(|added| (*added, *added)).collect();
        design.add(Chip { time, doses: drawn, delivered, follows: true, ..Chip::default() });
    }
    design.estimate();
    [0, 1].map(|function: usize| design.found()[function].estimated.unwrap().sensitivity)
}

#[test]
fn what_is_called_in_rare_parts_of_long_units_shows_in_full() {
    let [often, rare] = estimates_of_parts(true);
    assert!((often - 1.0).abs() < 0.1, "{often}");
    assert!((rare - 1.0).abs() < 0.25, "{rare}");
    // If chips that are far off count less, the rare part does not show.
    let [_, rare] = estimates_of_parts(false);
    assert!(rare < 0.6, "{rare}");
}
