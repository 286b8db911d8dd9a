//! What is known of one of two experiments: its values, each with an interval.

use statrs::distribution::ContinuousCDF as _;

use super::Known;
use crate::{
    analysis::{
        estimate::{MIN_BLOCKS, student},
        factor::Factor,
        verdict::Verdict,
    },
    record::{Experiment, Measured, PhaseKind, Slice, Treatment},
};

/// What is known of all of one experiment.
pub(super) struct Side {
    /// Time per unit without delays, in ns.
    unit: Option<f64>,
    /// Half the 95 % interval of that, as a share of it.
    unit_error: Option<f64>,
    /// The same of what was measured in the census.
    pub(super) census_error: Option<f64>,
    /// What a function that is not there is worth at most; `None` where that is not known.
    unseen: Option<f64>,
}

impl Side {
    pub(super) fn of(experiment: &Experiment) -> Self {
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

    pub(super) fn time_per_unit(&self) -> Known {
        around(self.unit, self.unit_error)
    }

    pub(super) fn worth(&self, factor: Option<&Factor>) -> Known {
        let Some(factor) = factor else {
            return Known::new(self.unseen.map(|_| 0.0), self.unseen.map(|_| 0.0), self.unseen);
        };
        if factor.verdict == Verdict::Dismissed {
            // All of its time at most.
            let share = factor.share(self.unit);
            return Known::new(share.map(|_| 0.0), share.map(|_| 0.0), share);
        }
        Known::new(factor.worth, factor.worth_low, factor.worth_high)
    }
}

/// A value that is known but for such a share.
pub(super) fn around(value: Option<f64>, error: Option<f64>) -> Known {
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
        let slices = if confirm.len() < MIN_BLOCKS { of(PhaseKind::Census) } else { confirm };
        if slices.len() < MIN_BLOCKS {
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
