//! When an estimate is enough for a verdict.

use super::sequence;

/// A normal value is within so many deviations in 95 of 100 cases.
const TWO_SIDED_95: f64 = 1.96;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// A function matters if it is worth this share of a unit, or more.
    pub worth: f64,
    /// A sensitivity within this of zero does not matter.
    pub threshold: f64,
    /// The share of a unit's time that delays may add.
    pub max_slowdown: f64,
    /// A verdict needs so many chips.
    pub min_chips: usize,
    /// The error that is allowed for all "matters" together.
    pub matters_error: f64,
    /// The error that is allowed for each "does not matter", on each side.
    pub does_not_error: f64,
}

impl Rules {
    /// The usual error for all "matters" together.
    pub const MATTERS_ERROR: f64 = 0.05;
    /// The usual error for each "does not matter", on each side.
    pub const DOES_NOT_ERROR: f64 = 0.1;

    /// The verdict about one of so many functions, whose own time is this share of a unit; `None` while it is
    /// open.
    pub(super) fn verdict(&self, functions: usize, share: Option<f64>, of: Estimated) -> Option<Verdict> {
        let Self { worth, threshold, matters_error, does_not_error, .. } = *self;
        let Estimated { sensitivity, error, freedom } = of;
        let for_matters = sequence::factor(error, matters_error / functions as f64, freedom) * error;
        let for_does_not = sequence::factor(error, does_not_error, freedom) * error;
        let (low, high) = (sensitivity - for_does_not, sensitivity + for_does_not);
        let is_enough = |sensitivity: f64| match share {
            Some(share) => sensitivity * share >= worth,
            None => sensitivity >= threshold,
        };
        if sensitivity - for_matters > 0.0 && is_enough(sensitivity) {
            return Some(Verdict::Matters);
        }
        // A thread that is delayed instead of waiting is back sooner: a little less time is no sign of
        // failure.
        if sensitivity + for_matters < -threshold && is_enough(-sensitivity) {
            return Some(Verdict::Faster);
        }
        let seems_to = sensitivity - TWO_SIDED_95 * error > 0.0 && is_enough(sensitivity);
        // Many threads may take more than all of a unit's time: then little of a delay is worth much.
        let is_small = low.abs().max(high.abs()) * share.unwrap_or(1.0).max(1.0) < threshold && !seems_to;
        let is_worth_little = share.is_some_and(|share| high * share < worth);
        // Units that take less time are not what a function does that does nothing.
        let is_less = sensitivity + TWO_SIDED_95 * error < 0.0 && is_enough(-sensitivity);
        (is_small || is_worth_little && !is_less).then_some(Verdict::DoesNot)
    }
}

/// A verdict about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its delays show, and it is worth enough.
    Matters,
    /// It is worth less than is asked for, or its delays do not show.
    DoesNot,
    /// Units take less time with its delays: what is counted is no measure of work.
    Faster,
}

/// An estimate of a sensitivity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimated {
    /// The share of the delay that shows.
    pub sensitivity: f64,
    /// Its standard error.
    pub error: f64,
    /// The degrees of freedom of that.
    pub freedom: f64,
}
