//! Checks that a metric is usable: it has to move, forwards, and in steps that are short compared with a
//! slice.

use super::{Runner, Stop};
use crate::{
    record::{PhaseKind, Slice, Treatment},
    units::Nanos,
};

/// Before this many slices of the census, the metric is polled for the time of a slice.
const POLLED: u32 = 4;
/// How often the metric is polled in that time.
const POLLS: u64 = 16;
/// With fewer steps in a slice, its count is off by a fifth or more.
const MIN_STEPS: f64 = 5.0;
/// The number of steps in a slice that messages recommend.
const WANTED_STEPS: f64 = 10.0;

/// How often the unit's metric moved.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// How often it moved while it was polled.
    fine: u32,
    /// How long it was polled, in ns.
    fine_span: f64,
    /// The slices in which it moved.
    slices: u32,
}

impl Runner<'_> {
    /// Measures a slice of the first round of the census. Before the first few, polls how often the metric
    /// moves.
    pub(super) fn control_of_census(&mut self, block: u32, steps: &mut Steps) -> Result<(), Stop> {
        if block < POLLED && !self.options.runs {
            let piece = Nanos((self.times.slice.0 / POLLS).max(1));
            let mut sample = self.sample()?;
            let begun = sample.at;
            for _ in 0..POLLS {
                self.subject.wait_until(sample.at + piece)?;
                let next = self.sample()?;
                steps.fine += u32::from(next.units != sample.units);
                sample = next;
            }
            steps.fine_span += sample.at.0.saturating_sub(begun.0) as f64;
        }
        self.check_time()?;
        let slice = if self.options.runs {
            self.run_of_benchmark(block, Treatment::Control, &[])?
        } else {
            self.measure(block, Treatment::Control, &[])?
        };
        steps.slices += u32::from(slice.units > 0.0);
        Ok(())
    }

    /// Ends the experiment, before any delay, if a metric is not usable.
    pub(super) fn check_steps(&self, steps: &Steps, slices: u32) -> Result<(), Stop> {
        let unit = &self.measured.unit;
        if steps.slices == 0 {
            return Err(Stop::Metric(format!(
                "no {} was done in the {slices} slices of the census: is the service under load? If {} is \
                 brought up to date less often than that, take longer slices (--slice)",
                unit.name, unit.source
            )));
        }
        for name in &self.measured.metrics {
            let is_set_back = |slice: &&Slice| !slice.metrics.contains_key(name);
            if self.measured.of_phase(PhaseKind::Census).any(|slice| is_set_back(&slice)) {
                return Err(Stop::Metric(format!(
                    "{name} jumped back: a counter only grows; if its value goes up and down, name it with \
                     gauge: before it"
                )));
            }
        }
        // Each unit moves a metric that is always up to date.
        if self.options.runs || self.options.quick {
            return Ok(());
        }
        let in_slice = f64::from(steps.fine) / f64::from(POLLED.min(slices));
        if in_slice >= MIN_STEPS {
            return Ok(());
        }
        // If the metric moves less than once a slice, we count its moves in the whole census.
        let span: f64 = self.measured.of_phase(PhaseKind::Census).map(Slice::span).sum();
        let each = if steps.fine > 1 {
            steps.fine_span / f64::from(steps.fine)
        } else {
            (span + steps.fine_span) / f64::from(steps.fine + steps.slices)
        };
        let wanted = Nanos(((each * WANTED_STEPS / 1e8).ceil().max(1.0) * 1e8) as u64);
        Err(Stop::Metric(format!(
            "{} moves each {} or so, {in_slice:.1} times in a slice of {}: too seldom to be compared. Take \
             longer slices and more time (--slice {wanted} --for {}), or a metric that is always up to date",
            unit.source,
            Nanos((each / 1e6).round().max(1.0) as u64 * 1_000_000),
            self.times.slice,
            time_for(wanted)
        )))
    }
}

/// The time that an experiment on a few functions takes with slices of this length.
pub(super) fn time_for(slice: Nanos) -> Nanos {
    const SLICES: u64 = 100;
    let seconds = slice.0.saturating_mul(SLICES).div_ceil(1_000_000_000);
    Nanos(seconds.saturating_mul(1_000_000_000))
}
