//! Functions that were tested by their callers: how much of a delay shows if calls from all of these callers
//! have it.

use std::path::PathBuf;

use serde::Serialize;

use super::factor::{Estimate, Factor};
use crate::record::{Candidate, Measured};

/// The sensitivity of a function over all of its callers that were tested as arms of their own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverCallers {
    /// Its name, without a caller.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// The line of its definition, if known.
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

/// The functions with more than one tested caller, if all of these have an estimate.
pub(super) fn over_callers(measured: &Measured, factors: &[Factor]) -> Vec<OverCallers> {
    let mut functions: Vec<(&Candidate, Vec<&Factor>)> = Vec::new();
    for factor in factors.iter().filter(|of| of.caller.is_some()) {
        let is_it = |of: &&Candidate| {
            of.caller == factor.caller
                && of.line == factor.line
                && Some(&of.file) == factor.file.as_ref()
                && of.name_and_caller() == factor.name
        };
        let Some(candidate) = measured.candidates.iter().find(is_it) else { continue };
        match functions.iter_mut().find(|(of, _)| of.function() == candidate.function()) {
            Some((_, arms)) => arms.push(factor),
            None => functions.push((candidate, vec![factor])),
        }
    }
    functions.into_iter().filter_map(|(of, arms)| over(of, &arms)).collect()
}

/// The mean over arms. Each call has the same delay, so an arm weighs by its calls. The arms' coins are
/// independent, and so are the errors of their estimates.
fn over(function: &Candidate, arms: &[&Factor]) -> Option<OverCallers> {
    let calls: f64 = arms.iter().map(|of| of.calls_per_unit).sum();
    if arms.len() < 2 || calls <= 0.0 {
        return None;
    }
    let (mut sensitivity, mut variance) = (0.0, 0.0);
    for arm in arms {
        let Estimate { sensitivity: of_arm, low, high } = arm.estimate()?;
        let part = arm.calls_per_unit / calls;
        sensitivity += part * of_arm;
        variance += (part * (high - low) / 2.0).powi(2);
    }
    let half = variance.sqrt();
    Some(OverCallers {
        name: function.name.clone(),
        file: function.file.clone(),
        line: function.line,
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

    /// Three calls a unit from one caller, whose delays are hidden, and one from another, whose delays show.
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
            let mut factor = Factor::for_candidate(&measured, &measured.candidates[at]);
            factor.set(estimate, Some(1e6));
            factors.push(factor);
        }
        (measured, factors)
    }

    #[test]
    fn callers_weigh_by_their_calls() {
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
    fn nothing_is_reported_if_an_estimate_is_missing_or_there_is_one_caller() {
        let (measured, mut factors) = record();
        assert_eq!(over_callers(&measured, &factors[..1]), []);
        (factors[0].sensitivity, factors[0].low, factors[0].high) = (None, None, None);
        assert_eq!(over_callers(&measured, &factors), []);
    }
}
