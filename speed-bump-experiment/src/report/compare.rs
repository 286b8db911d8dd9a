//! Two experiments beside each other: what changed from one to the other, as far as that is known.
//!
//! Each value has an interval by the random order of its own experiment. That of a difference is made of
//! those two, as the experiments know nothing of each other (Zou and Donner, Statistics in Medicine 27, 2008:
//! the square of each half of it is the sum of the squares of the halves that face it).

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

/// What changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Where the two are not comparable, and what else may have made a difference.
    pub differences: Vec<Difference>,
    /// Time per unit without delays, in ns.
    pub time_per_unit_ns: Change,
    /// By the change of worth, the largest first.
    pub functions: Vec<Changed>,
}

/// Something that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Whether numbers of one cannot be held against those of the other.
    pub fatal: bool,
    /// What it is.
    pub text: String,
}

/// A function, or a group of them, in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// Its name, as people write it.
    pub name: String,
    /// The file that it lies in.
    pub file: Option<PathBuf>,
    /// The line of its definition, in the later experiment where it is there.
    pub line: Option<u32>,
    /// What it is.
    pub kind: FactorKind,
    /// What was said of it; `None` where it was not looked at.
    pub verdict_before: Option<Verdict>,
    /// See there.
    pub verdict_after: Option<Verdict>,
    /// Worth, as a share of a unit's time.
    pub worth: Change,
    /// The share of added time that shows.
    pub sensitivity: Change,
    /// Own time per unit, in ns.
    pub own_ns_per_unit: Change,
}

/// A value before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Change {
    /// Before; `None` where it is not known.
    pub before: Option<f64>,
    /// After.
    pub after: Option<f64>,
    /// After less before.
    pub change: Option<f64>,
    /// The lower end of the change's 95 % interval; `None` where an interval is not known.
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

impl Change {
    fn of(before: Known, after: Known) -> Self {
        let change = before.value.zip(after.value).map(|(before, after)| after - before);
        let mut found = Self { before: before.value, after: after.value, change, low: None, high: None };
        if let (Some(change), Some(before), Some(after)) = (change, before.sides(), after.sides()) {
            found.low = Some(change - after.below.hypot(before.above));
            found.high = Some(change + after.above.hypot(before.below));
        }
        found
    }

    /// Whether it is shown that there is one: its interval holds no zero.
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

/// What changed from one experiment to another.
pub fn compare(before: &Experiment, after: &Experiment) -> Comparison {
    let sides = [before, after].map(Side::of);
    let pairs = pairs(&before.findings.factors, &after.findings.factors);
    let mut functions: Vec<Changed> =
        pairs.into_iter().filter_map(|(before, after)| changed(before, after, &sides)).collect();
    // What nobody looked at in either says nothing.
    let is_looked_at = |of: &Changed| {
        let looked_at =
            |verdict: Option<Verdict>| verdict.is_some_and(|verdict| verdict != Verdict::Dismissed);
        looked_at(of.verdict_before) || looked_at(of.verdict_after)
    };
    functions.retain(is_looked_at);
    let size = |of: &Changed| of.worth.change.map_or(-1.0, f64::abs);
    functions.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.name.cmp(&b.name)));
    let [was, is] = &sides;
    Comparison {
        schema: SCHEMA,
        differences: differences::differences(before, after),
        time_per_unit_ns: Change::of(was.time_per_unit(), is.time_per_unit()),
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
        worth: Change::of(was.worth(before), is.worth(after)),
        sensitivity: Change::of(sensitivity(before), sensitivity(after)),
        own_ns_per_unit: Change::of(own(before, was), own(after, is)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::simulated::{Function, Noise, sweep};

    pub(super) fn experiment(render_own: f64, seed: u64) -> Experiment {
        let of = |sensitivity| Function { calls: 2.0, sensitivity, slack: 0.0 };
        let functions = [("render".to_owned(), of(1.0), render_own), ("score".to_owned(), of(0.0), 2e5)];
        let measured = sweep(1e6, &functions, Noise::White(0.01), Duration::from_secs(60), seed);
        Experiment::of(measured)
    }

    #[test]
    fn what_became_faster_is_worth_less() {
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
    fn an_experiment_against_itself_shows_nothing() {
        let one = experiment(3e5, 1);
        let found = compare(&one, &one);
        assert!(found.functions.iter().all(|of| !of.worth.is_shown() && of.worth.change == Some(0.0)));
        assert_eq!(found.time_per_unit_ns.change, Some(0.0));
    }

    #[test]
    fn a_function_of_one_alone_is_told_of() {
        let mut after = experiment(3e5, 2);
        after.findings.factors.retain(|of| of.name != "score");
        let found = compare(&experiment(3e5, 1), &after);
        let score = found.functions.iter().find(|of| of.name == "score").unwrap();
        assert!(score.verdict_before.is_some() && score.verdict_after.is_none());
        assert_eq!(score.worth.change, None);
    }

    /// The plainest regression: what was not worth a look is worth a fifth of a unit.
    #[test]
    fn what_was_dismissed_and_matters_now_is_shown() {
        let (before, after) = (experiment(5e3, 1), experiment(2e5, 2));
        let factor = |of: &Experiment| of.findings.factors.iter().find(|of| of.name == "render").cloned();
        assert_eq!(factor(&before).unwrap().verdict, Verdict::Dismissed);
        let found = compare(&before, &after);
        let render = &found.functions[0];
        assert!(render.name == "render" && render.worth.is_shown(), "{render:?}");
        assert!(render.worth.low.unwrap() > 0.15, "{render:?}");
        // One that was not seen at all is as good as dismissed, where sampling saw everything.
        let mut unseen = before;
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
    fn intervals_of_differences_are_made_of_both() {
        let of = |value: f64, low: f64, high: f64| Known::new(Some(value), Some(low), Some(high));
        let found = Change::of(of(1.0, 0.7, 1.4), of(2.0, 1.6, 2.3));
        let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-9;
        assert!(near(found.low, 1.0 - 0.4_f64.hypot(0.4)), "{found:?}");
        assert!(near(found.high, 1.0 + 0.3_f64.hypot(0.3)), "{found:?}");
    }
}
