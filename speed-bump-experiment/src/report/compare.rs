//! Compares two experiments.
//!
//! Each value has an interval from the random order of its own experiment. The experiments are independent,
//! so the interval of a difference combines these two (Zou and Donner, Statistics in Medicine 27, 2008: the
//! square of each half is the sum of the squares of the two halves that point towards each other).

mod differences;
mod pairs;
mod side;
pub mod text;

use std::path::PathBuf;

use serde::Serialize;

use super::words::whole_name;
use crate::{
    analysis::{
        factor::{Factor, FactorKind},
        verdict::Verdict,
    },
    record::Experiment,
};
use pairs::pairs;
use side::{Side, around};

/// The name of this format.
pub const SCHEMA: &str = "speed-bump/comparison/1";

/// The changes from one experiment to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Why the two are not comparable, and what else may have made a difference.
    pub differences: Vec<Difference>,
    /// Time per unit without delays, in ns.
    pub time_per_unit_ns: Change,
    /// The functions, the largest change of worth first.
    pub functions: Vec<Changed>,
}

/// A difference between the experiments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Whether the experiments are not comparable because of it.
    pub fatal: bool,
    /// The difference, for the user.
    pub text: String,
}

/// A function, or a group of functions, in both experiments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// Its name, demangled.
    pub name: String,
    /// The file that it lies in.
    pub file: Option<PathBuf>,
    /// The line of its definition, in the later experiment that has it.
    pub line: Option<u32>,
    /// What kind of function.
    pub kind: FactorKind,
    /// Its verdict in the first experiment; `None` if the experiment did not have it.
    pub verdict_before: Option<Verdict>,
    /// Its verdict in the second experiment.
    pub verdict_after: Option<Verdict>,
    /// Worth, as a share of the time per unit.
    pub worth: Change,
    /// The share of added time that shows.
    pub sensitivity: Change,
    /// Own time per unit, in ns.
    pub own_ns_per_unit: Change,
}

/// A value before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Change {
    /// The value before; `None` if unknown.
    pub before: Option<f64>,
    /// The value after.
    pub after: Option<f64>,
    /// The difference.
    pub change: Option<f64>,
    /// The lower end of the change's 95 % interval; `None` if unknown.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Known {
    value: Option<f64>,
    interval: Option<(f64, f64)>,
}

impl Comparison {
    /// Whether the experiments are not comparable.
    pub fn is_fatal(&self) -> bool {
        self.differences.iter().any(|difference| difference.fatal)
    }
}

impl Change {
    fn between(before: Known, after: Known) -> Self {
        let change = before.value.zip(after.value).map(|(before, after)| after - before);
        let mut found = Self { before: before.value, after: after.value, change, low: None, high: None };
        if let (Some(change), Some(before), Some(after)) = (change, before.sides(), after.sides()) {
            found.low = Some(change - after.below.hypot(before.above));
            found.high = Some(change + after.above.hypot(before.below));
        }
        found
    }

    /// Whether the change is shown: its interval does not contain zero.
    pub fn is_shown(&self) -> bool {
        self.low.is_some_and(|low| low > 0.0) || self.high.is_some_and(|high| high < 0.0)
    }
}

/// How far an interval goes to each side of its value.
struct Sides {
    below: f64,
    above: f64,
}

impl Known {
    fn new(value: Option<f64>, low: Option<f64>, high: Option<f64>) -> Self {
        Self { value, interval: low.zip(high) }
    }

    fn sides(&self) -> Option<Sides> {
        let (value, (low, high)) = self.value.zip(self.interval)?;
        Some(Sides { below: (value - low).max(0.0), above: (high - value).max(0.0) })
    }
}

/// Compares two experiments.
pub fn compare(before: &Experiment, after: &Experiment) -> Comparison {
    let sides = [before, after].map(Side::new);
    let pairs = pairs(&before.findings.factors, &after.findings.factors);
    let mut functions: Vec<Changed> =
        pairs.into_iter().filter_map(|(before, after)| changed(before, after, &sides)).collect();
    // Leave out functions that neither experiment tested.
    let was_tested = |of: &Changed| {
        let tested = |verdict: Option<Verdict>| verdict.is_some_and(|verdict| verdict != Verdict::Dismissed);
        tested(of.verdict_before) || tested(of.verdict_after)
    };
    functions.retain(was_tested);
    let size = |of: &Changed| of.worth.change.map_or(-1.0, f64::abs);
    functions.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.name.cmp(&b.name)));
    let [was, is] = &sides;
    Comparison {
        schema: SCHEMA,
        differences: differences::differences(before, after),
        time_per_unit_ns: Change::between(was.time_per_unit(), is.time_per_unit()),
        functions,
    }
}

fn changed(before: Option<&Factor>, after: Option<&Factor>, [was, is]: &[Side; 2]) -> Option<Changed> {
    let of = after.or(before)?;
    let sensitivity = |factor: Option<&Factor>| {
        factor.map(|of| Known::new(of.sensitivity, of.low, of.high)).unwrap_or_default()
    };
    let own = |factor: Option<&Factor>, side: &Side| {
        factor.map(|of| around(of.own_ns_per_unit, side.census_error)).unwrap_or_default()
    };
    Some(Changed {
        name: whole_name(of),
        file: of.file.clone(),
        line: of.line,
        kind: of.kind,
        verdict_before: before.map(|of| of.verdict),
        verdict_after: after.map(|of| of.verdict),
        worth: Change::between(was.worth(before), is.worth(after)),
        sensitivity: Change::between(sensitivity(before), sensitivity(after)),
        own_ns_per_unit: Change::between(own(before, was), own(after, is)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::{
        record::Measured,
        simulated::{Function, Noise, record, sweep, sweep_of},
    };

    pub(super) fn experiment(render_own: f64, seed: u64) -> Experiment {
        let of = |sensitivity| Function { calls: 2.0, sensitivity, slack: 0.0 };
        let functions = [("render".to_owned(), of(1.0), render_own), ("score".to_owned(), of(0.0), 2e5)];
        let measured = sweep(1e6, &functions, Noise::White(0.01), Duration::from_secs(60), seed);
        Experiment::new(measured)
    }

    /// Such an experiment with functions that sampling chose.
    fn sampled_experiment(render_own: f64, seed: u64) -> Experiment {
        let of = |sensitivity| Function { calls: 2.0, sensitivity, slack: 0.0 };
        let functions = [("render".to_owned(), of(1.0), render_own), ("score".to_owned(), of(0.0), 2e5)];
        let record = Measured { sampling: Some(Default::default()), ..record(1e6, &functions, seed) };
        let time = Duration::from_secs(60);
        Experiment::new(sweep_of(record, 1e6, &functions, Noise::White(0.01), time))
    }

    #[test]
    fn a_faster_function_is_worth_less() {
        let found = compare(&experiment(3e5, 1), &experiment(1e5, 2));
        let render = &found.functions[0];
        assert_eq!(render.name, "render");
        let worth = render.worth;
        assert!(worth.is_shown() && (worth.change.unwrap() + 0.2).abs() < 0.05, "{worth:?}");
        assert!(worth.low.unwrap() < worth.change.unwrap() && worth.change.unwrap() < worth.high.unwrap());
        assert!(!render.sensitivity.is_shown(), "{:?}", render.sensitivity);
        assert_eq!(render.own_ns_per_unit.change, Some(-2e5));
        let score = found.functions.iter().find(|of| of.name == "score").unwrap();
        assert!(!score.worth.is_shown(), "{score:?}");
        assert!(found.differences.iter().all(|of| !of.fatal), "{:?}", found.differences);
    }

    #[test]
    fn an_experiment_compared_with_itself_shows_no_change() {
        let one = experiment(3e5, 1);
        let found = compare(&one, &one);
        assert!(found.functions.iter().all(|of| !of.worth.is_shown() && of.worth.change == Some(0.0)));
        assert_eq!(found.time_per_unit_ns.change, Some(0.0));
    }

    #[test]
    fn a_function_of_only_one_experiment_is_in_the_comparison() {
        let mut after = experiment(3e5, 2);
        after.findings.factors.retain(|of| of.name != "score");
        let found = compare(&experiment(3e5, 1), &after);
        let score = found.functions.iter().find(|of| of.name == "score").unwrap();
        assert!(score.verdict_before.is_some() && score.verdict_after.is_none());
        assert_eq!(score.worth.change, None);
    }

    /// A clear regression: a dismissed function becomes worth a fifth of a unit.
    #[test]
    fn a_dismissed_function_that_matters_now_is_shown() {
        let (before, after) = (sampled_experiment(5e3, 1), experiment(2e5, 2));
        let factor = |of: &Experiment| of.findings.factors.iter().find(|of| of.name == "render").cloned();
        assert_eq!(factor(&before).unwrap().verdict, Verdict::Dismissed);
        let found = compare(&before, &after);
        let render = &found.functions[0];
        assert!(render.name == "render" && render.worth.is_shown(), "{render:?}");
        assert!(render.worth.low.unwrap() > 0.13, "{render:?}");
        // If sampling saw everything, a function that was not seen at all is as good as dismissed.
        let mut unseen = before;
        unseen.measured.sampling = None;
        unseen.findings.factors.retain(|of| of.name != "render");
        assert_eq!(
            compare(&unseen, &after).functions.iter().find(|of| of.name == "render").unwrap().worth.change,
            None
        );
        unseen.measured.sampling = Some(Default::default());
        let found = compare(&unseen, &after);
        assert!(found.functions[0].name == "render" && found.functions[0].worth.is_shown(), "{found:?}");
    }

    #[test]
    fn intervals_of_differences_combine_both_intervals() {
        let of = |value: f64, low: f64, high: f64| Known::new(Some(value), Some(low), Some(high));
        let found = Change::between(of(1.0, 0.7, 1.4), of(2.0, 1.6, 2.3));
        let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-9;
        assert!(near(found.low, 1.0 - 0.4_f64.hypot(0.4)), "{found:?}");
        assert!(near(found.high, 1.0 + 0.3_f64.hypot(0.3)), "{found:?}");
    }
}
