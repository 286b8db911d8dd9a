//! When an estimate is enough for a verdict.

use super::sequence;

/// A normal value is within this many deviations of the mean in 95 of 100 cases.
const TWO_SIDED_95: f64 = 1.96;

/// The parameters of verdicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// A function matters if it is worth this share of a unit, or more.
    pub worth: f64,
    /// A sensitivity within this of zero does not matter.
    pub threshold: f64,
    /// The share of a unit's time that delays may add.
    pub max_slowdown: f64,
    /// A verdict needs this many chips.
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

    /// The verdict about one of `functions` functions, whose own time is `share` of a unit; `None` while it
    /// is undecided.
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
        if sensitivity + for_matters < 0.0 && is_enough(-sensitivity) {
            return Some(Verdict::Faster);
        }
        let seems_to = sensitivity - TWO_SIDED_95 * error > 0.0 && is_enough(sensitivity);
        // If many threads run a function, its own time may be longer than a unit. Then even a small share of
        // a delay is worth much.
        let is_small = low.abs().max(high.abs()) * share.unwrap_or(1.0).max(1.0) < threshold && !seems_to;
        let is_worth_little = share.is_some_and(|share| high * share < worth);
        // A function without effect does not make units faster.
        let is_less = sensitivity + TWO_SIDED_95 * error < 0.0 && is_enough(-sensitivity);
        (!is_less && (is_worth_little || is_small)).then_some(Verdict::DoesNot)
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
    /// The degrees of freedom of the error.
    pub freedom: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        worth: 0.01,
        threshold: 0.1,
        max_slowdown: 0.1,
        min_chips: 20,
        matters_error: Rules::MATTERS_ERROR,
        does_not_error: Rules::DOES_NOT_ERROR,
    };

    /// The verdict about one of ten functions.
    fn verdict(sensitivity: f64, error: f64, share: Option<f64>) -> Option<Verdict> {
        RULES.verdict(10, share, Estimated { sensitivity, error, freedom: 200.0 })
    }

    #[test]
    fn what_shows_and_is_worth_enough_matters() {
        assert_eq!(verdict(1.0, 0.1, Some(0.2)), Some(Verdict::Matters));
        assert_eq!(verdict(1.0, 0.1, None), Some(Verdict::Matters));
        // Shown, and worth too little.
        assert_eq!(verdict(1.0, 0.1, Some(0.002)), Some(Verdict::DoesNot));
        // Worth enough, and not shown yet.
        assert_eq!(verdict(1.0, 0.5, Some(0.2)), None);
    }

    #[test]
    fn what_shows_little_does_not_matter() {
        assert_eq!(verdict(0.0, 0.02, Some(0.2)), Some(Verdict::DoesNot));
        assert_eq!(verdict(0.0, 0.02, None), Some(Verdict::DoesNot));
        assert_eq!(verdict(0.0, 0.1, Some(0.2)), None);
        // A small share of a function with much own time is worth enough.
        assert_eq!(verdict(0.05, 0.02, Some(0.4)), None);
        // A small share of a function that takes the time of many threads.
        assert_eq!(verdict(0.02, 0.02, Some(4.0)), None);
    }

    #[test]
    fn units_that_take_less_time_with_delays_never_make_a_function_one_that_does_not_matter() {
        assert_eq!(verdict(-1.0, 0.1, Some(0.2)), Some(Verdict::Faster));
        assert_eq!(verdict(-1.0, 0.1, None), Some(Verdict::Faster));
        // The share would be large enough to matter, although it is less than the threshold.
        assert_eq!(verdict(-0.08, 0.015, Some(0.4)), Some(Verdict::Faster));
        // This is likely, and not sure yet.
        assert_eq!(verdict(-0.08, 0.03, Some(0.4)), None);
        // Too little for anything.
        assert_eq!(verdict(-0.05, 0.01, None), Some(Verdict::DoesNot));
        assert_eq!(verdict(-1.0, 0.1, Some(0.002)), Some(Verdict::DoesNot));
    }
}
