use super::*;
use crate::{simulated::Function, testing};

#[test]
fn what_is_shown_comes_before_what_chance_estimates_higher() {
    let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
    let record = testing::measured(&[("f", function, 100)]);
    let factor = |name: &str, verdict, worth| {
        let factor = Factor::for_candidate(&record, &record.candidates[0]);
        Factor { name: name.to_owned(), verdict, worth: Some(worth), worth_high: Some(worth), ..factor }
    };
    let group = Factor { kind: FactorKind::Group, ..factor("both", Verdict::Matters, 0.9) };
    // It may be worth more than all others.
    let wide = Factor { worth_high: Some(0.5), ..factor("wide", Verdict::Undecided, 0.01) };
    let mut factors = [
        factor("decided early", Verdict::Undecided, 0.08),
        wide,
        factor("most", Verdict::Matters, 0.04),
        factor("dismissed", Verdict::Dismissed, 0.0),
        factor("hidden", Verdict::DoesNotMatter, 0.01),
        group,
        factor("some", Verdict::Matters, 0.03),
    ];
    rank(&mut factors);
    let names = factors.each_ref().map(|of| of.name.as_str());
    assert_eq!(names, ["most", "some", "wide", "decided early", "hidden", "both", "dismissed"]);
}

/// One of twenty functions without effect has a 95 % interval above zero in half of all sweeps.
#[test]
fn throughput_reacts_if_that_is_sure_for_all_functions_together() {
    let of = |sensitivity| Estimated { sensitivity, error: 0.1, freedom: 1_000.0 };
    assert!(is_above_zero(of(0.26), 0.005) && !is_above_zero(of(0.25), 0.005));
    assert!(is_above_zero(of(0.36), 0.005 / 20.0) && !is_above_zero(of(0.34), 0.005 / 20.0));
    assert!(!is_above_zero(of(f64::NAN), 0.005));
}
