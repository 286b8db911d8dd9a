//! Functions that were delayed by their callers: what shows of a delay of all these calls.

use std::path::PathBuf;

use serde::Serialize;

use super::factor::{Estimate, Factor};
use crate::record::Measured;

/// A function whose callers are arms of their own, over all of these.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverCallers {
    /// Its name, without a caller.
    pub name: String,
    /// The file that it lies in.
    pub file: Option<PathBuf>,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// How many arms it has.
    pub arms: usize,
    /// Calls per unit from all of these callers.
    pub calls_per_unit: f64,
    /// The share of a delay of each of these calls that shows up in the time per unit.
    pub sensitivity: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The functions of which more than one caller was tested, and all that were have an estimate.
pub(super) fn over_callers(measured: &Measured, factors: &[Factor]) -> Vec<OverCallers> {
    let mut functions: Vec<(&str, Vec<&Factor>)> = Vec::new();
    for factor in factors.iter().filter(|of| of.caller.is_some()) {
        let is_it = |of: &&crate::record::Candidate| {
            of.caller == factor.caller
                && of.line == factor.line
                && Some(&of.file) == factor.file.as_ref()
                && of.name_and_caller() == factor.name
        };
        let Some(candidate) = measured.candidates.iter().find(is_it) else { continue };
        let is_same = |(name, of): &&mut (&str, Vec<&Factor>)| {
            *name == candidate.name
                && of.first().is_some_and(|first| (&first.file, first.line) == (&factor.file, factor.line))
        };
        match functions.iter_mut().find(is_same) {
            Some((_, of)) => of.push(factor),
            None => functions.push((&candidate.name, vec![factor])),
        }
    }
    functions.into_iter().filter_map(|(name, arms)| over(name, &arms)).collect()
}

/// Each call has the same delay, so that an arm counts by its calls. Their coins are independent, and so are
/// the errors of their estimates.
fn over(name: &str, arms: &[&Factor]) -> Option<OverCallers> {
    let [first, _, ..] = arms else { return None };
    let calls: f64 = arms.iter().map(|of| of.calls_per_unit).sum();
    let (mut sensitivity, mut variance) = (0.0, 0.0);
    for arm in arms {
        let Estimate { sensitivity: of_arm, low, high } = arm.estimate()?;
        let part = arm.calls_per_unit / calls;
        sensitivity += part * of_arm;
        variance += (part * (high - low) / 2.0).powi(2);
    }
    let half = variance.sqrt();
    (calls > 0.0).then(|| OverCallers {
        name: name.to_owned(),
        file: first.file.clone(),
        line: first.line,
        arms: arms.len(),
        calls_per_unit: calls,
        sensitivity,
        low: sensitivity - half,
        high: sensitivity + half,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::{simulated::Function, testing};

    /// Three calls a unit from one caller, of which nothing shows, and one from another, of which all does.
    fn record() -> (Measured, Vec<Factor>) {
        let hidden = Function { calls: 3.0, sensitivity: 0.0, slack: 0.0 };
        let shown = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let mut measured = testing::measured(&[("burn", hidden, 300), ("burn", shown, 100)]);
        let mut factors = Vec::new();
        let estimates = [Estimate { sensitivity: 0.0, low: -0.04, high: 0.04 }; 2];
        for (at, (caller, mut estimate)) in ["hot_shadow", "cold_tail"].into_iter().zip(estimates).enumerate()
        {
            let first = measured.candidates[0].clone();
            let candidate = &mut measured.candidates[at];
            (candidate.file, candidate.line) = (first.file, first.line);
            candidate.caller = Some(caller.to_owned());
            if caller == "cold_tail" {
                estimate = Estimate { sensitivity: 1.0, low: 0.88, high: 1.12 };
            }
            let mut factor = Factor::of_candidate(&measured, &measured.candidates[at]);
            factor.set(estimate, Some(1e6));
            factors.push(factor);
        }
        (measured, factors)
    }

    #[test]
    fn a_function_is_told_over_its_callers_by_their_calls() {
        let (measured, factors) = record();
        let over = over_callers(&measured, &factors);
        let [over] = over.as_slice() else { panic!("{over:?}") };
        let near = |a: f64, b: f64| (a - b).abs() < 0.005;
        assert_eq!((over.name.as_str(), over.arms), ("burn", 2));
        assert!(near(over.sensitivity, 0.25) && near(over.calls_per_unit, 4.0), "{over:?}");
        // 3/4 of 0.04 and 1/4 of 0.12, as independent errors.
        assert!(near(over.high - over.sensitivity, 0.0424) && near(over.sensitivity - over.low, 0.0424));
    }

    #[test]
    fn it_is_not_told_where_an_estimate_is_missing_or_there_is_one_caller() {
        let (measured, mut factors) = record();
        assert_eq!(over_callers(&measured, &factors[..1]), []);
        (factors[0].sensitivity, factors[0].low, factors[0].high) = (None, None, None);
        assert_eq!(over_callers(&measured, &factors), []);
    }
}
