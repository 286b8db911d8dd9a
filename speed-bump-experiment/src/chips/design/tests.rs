#![allow(clippy::unwrap_used)]

use super::*;
use crate::chips::{
    sweep::{Plan, Swept, sweep},
    world::{Pace, Service, World},
};

/// Units of 10 ms.
fn swept(sensitivities: &[f64], own: &[f64], pace: Pace, seed: u64) -> Swept {
    swept_with(sensitivities, own, pace, 0.5, seed)
}

/// And so many of them still have the doses from before a change.
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
    let asked: Vec<Asked> = own.iter().map(|&share| Asked { share: Some(share), thread: 0 }).collect();
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
