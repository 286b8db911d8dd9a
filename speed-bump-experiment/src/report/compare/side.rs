//! The values of one of two experiments, with intervals.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::Known;
use crate::{
    analysis::{factor::Factor, verdict::Verdict},
    record::{Experiment, Measured, Slice, Treatment},
};

/// With fewer slices, noise is not known.
const MIN_SLICES: usize = 8;

/// The values of one experiment that do not belong to a single function.
pub(super) struct Side {
    /// Time per unit without delays, in ns.
    unit: Option<f64>,
    /// Half of the 95 % interval of the time per unit, as a share of the time per unit.
    unit_error: Option<f64>,
    /// Half of the 95 % interval of a value of the census, as a share of the value.
    pub(super) census_error: Option<f64>,
    /// What a missing function is worth at most; `None` if unknown.
    unseen: Option<f64>,
}

impl Side {
    pub(super) fn new(experiment: &Experiment) -> Self {
        let measured = &experiment.measured;
        let noise = Noise::measure(measured);
        let census = measured.census.end_ns.0.saturating_sub(measured.census.start_ns.0) as f64;
        Self {
            unit: experiment.findings.time_per_unit_ns,
            unit_error: noise.map(|noise| noise.error(noise.slices)),
            // The census is as long as this many slices.
            census_error: noise.filter(|of| of.span > 0.0).map(|noise| noise.error(census / noise.span)),
            // Sampling sees everything that takes time, so a missing function is worth less than `--worth`.
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
            // A function is worth at most its own time.
            let share = factor.share(self.unit);
            return Known::new(share.map(|_| 0.0), share.map(|_| 0.0), share);
        }
        Known::new(factor.worth, factor.worth_low, factor.worth_high)
    }
}

/// A value with its error. `error` is a share of the value.
pub(super) fn around(value: Option<f64>, error: Option<f64>) -> Known {
    let half = value.zip(error).map(|(value, error)| value * error);
    Known::new(value, value.zip(half).map(|(value, half)| value - half), value.zip(half).map(|(a, b)| a + b))
}

/// How the time per unit varies from slice to slice, without delays.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// The deviation, as a share of the mean.
    deviation: f64,
    /// Number of slices.
    slices: f64,
    /// Mean length of a slice, in ns.
    span: f64,
    /// The quantile of Student's t.
    quantile: f64,
}

impl Noise {
    /// The noise of the slices without delays. `None` if there are too few of these slices, or if the
    /// experiment compares a quantile: slices are too short for a quantile.
    fn measure(measured: &Measured) -> Option<Self> {
        if measured.by.quantile().is_some() {
            return None;
        }
        let slices = measured.slices.iter().filter(|slice| slice.counts());
        let slices: Vec<&Slice> = slices.filter(|slice| slice.treatment == Treatment::Control).collect();
        if slices.len() < MIN_SLICES {
            return None;
        }
        let count = slices.len() as f64;
        let mean_of = |value: &dyn Fn(&Slice) -> f64| slices.iter().map(|of| value(of)).sum::<f64>() / count;
        let mean = mean_of(&|slice| slice.time_per_unit(measured.by));
        let variance =
            mean_of(&|slice| (slice.time_per_unit(measured.by) - mean).powi(2)) * count / (count - 1.0);
        let deviation = variance.sqrt() / mean;
        let quantile = StudentsT::new(0.0, 1.0, count - 1.0).ok()?.inverse_cdf(0.975);
        let is_known = deviation.is_finite() && quantile.is_finite();
        is_known.then_some(Self { deviation, slices: count, span: mean_of(&Slice::span), quantile })
    }

    /// Half of the 95 % interval of the mean of `slices` slices.
    fn error(&self, slices: f64) -> f64 {
        self.quantile * self.deviation / slices.max(1.0).sqrt()
    }
}
