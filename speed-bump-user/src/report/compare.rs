//! Two experiments beside each other: what changed from one to the other, as far as that is known.
//!
//! Each value has an interval by the random order of its own experiment. That of a difference is made of
//! those two, as the experiments know nothing of each other (Zou and Donner, Statistics in Medicine 27, 2008:
//! the square of each half of it is the sum of the squares of the halves that face it).

mod differences;
pub mod text;

use std::path::PathBuf;

use serde::Serialize;

use statrs::distribution::ContinuousCDF as _;

use super::words::whole_name;
use crate::experiment::{
    analysis::{
        estimate::{LEAST_BLOCKS, student},
        factor::{Factor, FactorKind},
        verdict::Verdict,
    },
    record::{Experiment, Measured, PhaseKind, Slice, Treatment},
};

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
    let mut pairs: Vec<(Option<&Factor>, Option<&Factor>)> = Vec::new();
    let mut rest: Vec<&Factor> = after.findings.factors.iter().collect();
    // Those on the same line first: lines move from version to version, and names come twice in a file.
    let (same, moved): (Vec<&Factor>, Vec<&Factor>) = before
        .findings
        .factors
        .iter()
        .partition(|factor| rest.iter().any(|of| of.line == factor.line && is_same(of, factor)));
    for factor in same {
        let place = rest.iter().position(|of| of.line == factor.line && is_same(of, factor));
        pairs.push((Some(factor), place.map(|place| rest.remove(place))));
    }
    let by_line = |factors: &mut Vec<&Factor>| factors.sort_by_key(|of| of.line);
    let mut moved = moved;
    by_line(&mut moved);
    by_line(&mut rest);
    for factor in moved {
        let place = rest.iter().position(|of| is_same(of, factor));
        pairs.push((Some(factor), place.map(|place| rest.remove(place))));
    }
    pairs.extend(rest.into_iter().map(|factor| (None, Some(factor))));
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

/// What is known of all of one experiment.
struct Side {
    /// Time per unit without delays, in ns.
    unit: Option<f64>,
    /// Half the 95 % interval of that, as a share of it.
    unit_error: Option<f64>,
    /// The same of what was measured in the census.
    census_error: Option<f64>,
    /// What a function that is not there is worth at most; `None` where that is not known.
    unseen: Option<f64>,
}

impl Side {
    fn of(experiment: &Experiment) -> Self {
        let measured = &experiment.measured;
        let noise = Noise::of(measured);
        let census = measured.census.end_ns.0.saturating_sub(measured.census.start_ns.0) as f64;
        Self {
            unit: experiment.findings.time_per_unit_ns,
            unit_error: noise.map(|noise| noise.error(noise.slices)),
            // It is as long as so many slices.
            census_error: noise.filter(|of| of.span > 0.0).map(|noise| noise.error(census / noise.span)),
            // Sampling sees all that takes time: what it did not see is worth less than what is looked at.
            unseen: measured.sampling.as_ref().map(|_| measured.rules.worth),
        }
    }

    fn time_per_unit(&self) -> Known {
        around(self.unit, self.unit_error)
    }

    fn worth(&self, factor: Option<&Factor>) -> Known {
        let Some(factor) = factor else {
            return Known::new(self.unseen.map(|_| 0.0), self.unseen.map(|_| 0.0), self.unseen);
        };
        if factor.verdict == Verdict::Dismissed {
            // All of its time at most.
            let share = factor.own_ns_per_unit.zip(self.unit).map(|(own, unit)| own / unit);
            return Known::new(share.map(|_| 0.0), share.map(|_| 0.0), share);
        }
        Known::new(factor.worth, factor.worth_low, factor.worth_high)
    }
}

/// Whether two factors are of the same function: lines move from version to version, and symbols have in them
/// what each build has anew.
fn is_same(one: &Factor, other: &Factor) -> bool {
    one.kind == other.kind && one.file == other.file && whole_name(one) == whole_name(other)
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

/// A value that is known but for such a share.
fn around(value: Option<f64>, error: Option<f64>) -> Known {
    let half = value.zip(error).map(|(value, error)| value * error);
    Known::new(value, value.zip(half).map(|(value, half)| value - half), value.zip(half).map(|(a, b)| a + b))
}

/// How the time per unit varies from slice to slice, without delays.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// The deviation, as a share of the mean.
    deviation: f64,
    /// How many slices it is of.
    slices: f64,
    /// How long one takes, in ns.
    span: f64,
    /// The quantile of Student's t.
    quantile: f64,
}

impl Noise {
    /// Of the last phase, or of a census where it did not come to that; `None` of few slices.
    fn of(measured: &Measured) -> Option<Self> {
        let of = |phase: PhaseKind| -> Vec<&Slice> {
            let slices = measured.of_phase(phase);
            slices.filter(|slice| slice.treatment == Treatment::Control).collect()
        };
        let confirm = of(PhaseKind::Confirm);
        let slices = if confirm.len() < LEAST_BLOCKS { of(PhaseKind::Census) } else { confirm };
        if slices.len() < LEAST_BLOCKS {
            return None;
        }
        let count = slices.len() as f64;
        let mean_of = |value: &dyn Fn(&Slice) -> f64| slices.iter().map(|of| value(of)).sum::<f64>() / count;
        let mean = mean_of(&|slice| slice.time_per_unit(measured.by));
        let variance =
            mean_of(&|slice| (slice.time_per_unit(measured.by) - mean).powi(2)) * count / (count - 1.0);
        let deviation = variance.sqrt() / mean;
        let quantile = student(slices.len() - 1)?.inverse_cdf(0.975);
        let is_known = deviation.is_finite() && quantile.is_finite();
        is_known.then_some(Self { deviation, slices: count, span: mean_of(&Slice::span), quantile })
    }

    /// Half the 95 % interval of the mean of so many slices.
    fn error(&self, slices: f64) -> f64 {
        self.quantile * self.deviation / slices.max(1.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::experiment::{
        analysis::findings::findings,
        simulated::{Function, Noise, sweep},
    };

    pub(super) fn experiment(render_own: f64, seed: u64) -> Experiment {
        let of = |sensitivity| Function { calls: 2.0, sensitivity, slack: 0.0 };
        let functions = [("render".to_owned(), of(1.0), render_own), ("score".to_owned(), of(0.0), 2e5)];
        let measured = sweep(1e6, &functions, Noise::White(0.01), Duration::from_secs(60), seed);
        let findings = findings(&measured);
        Experiment { measured, findings }
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
    fn functions_of_one_name_are_told_apart_by_their_lines() {
        let mut before = experiment(3e5, 1);
        before.findings.factors.retain(|of| of.kind != FactorKind::Group);
        let mut after = before.clone();
        for (experiment, order) in [(&mut before, [10, 20]), (&mut after, [12, 22])] {
            for (factor, line) in experiment.findings.factors.iter_mut().zip(order) {
                (factor.name, factor.line) = ("make.<locals>.<lambda>".to_owned(), Some(line));
            }
        }
        after.findings.factors.reverse();
        let found = compare(&before, &after);
        assert_eq!(found.functions.len(), 2);
        assert!(found.functions.iter().all(|of| of.worth.change == Some(0.0)), "{found:?}");
    }

    #[test]
    fn symbols_of_two_builds_are_of_one_function() {
        let with = |hash: &str| {
            let mut of = experiment(3e5, 1);
            of.findings.factors.truncate(1);
            of.findings.factors[0].kind = FactorKind::Native;
            of.findings.factors[0].name = format!("_ZN3app6render17h{hash}E");
            of
        };
        let found = compare(&with("1111111111111111"), &with("2222222222222222"));
        assert_eq!(found.functions.len(), 1);
        assert_eq!(
            (found.functions[0].name.as_str(), found.functions[0].worth.change),
            ("app::render", Some(0.0))
        );
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
