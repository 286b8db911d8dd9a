//! Whether a metric can serve: it has to move, forwards, and in steps that are small beside a slice.

use super::{Runner, Stop};
use crate::{
    record::{PhaseKind, Slice, Treatment},
    units::Nanos,
};

/// Slices of the census in which it is looked how often the metric moves.
const LOOKED_AT: u32 = 4;
/// So often in a slice.
const LOOKS: u64 = 16;
/// Fewer steps in a slice than this, and a slice is off by a fifth and more.
const MIN: f64 = 5.0;
/// So many there should be.
const WANTED: f64 = 10.0;

/// How often the unit's metric moved.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// In the slices that were looked at.
    fine: u32,
    /// Of those the time.
    fine_span: f64,
    /// From slice to slice, where there are few.
    slices: u32,
}

impl Runner<'_> {
    /// A slice without delays, of the first ones. In the first few it is looked how often the metric moves.
    pub(super) fn control_of_census(&mut self, block: u32, steps: &mut Steps) -> Result<(), Stop> {
        if block < LOOKED_AT && !self.options.runs {
            let piece = Nanos((self.times.slice.0 / LOOKS).max(1));
            let mut sample = self.look()?;
            let begun = sample.at;
            for _ in 0..LOOKS {
                self.subject.wait_until(sample.at + piece)?;
                let next = self.look()?;
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

    /// Ends the experiment before any delay, where a metric cannot serve.
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
        let in_slice = f64::from(steps.fine) / f64::from(LOOKED_AT.min(slices));
        if in_slice >= MIN {
            return Ok(());
        }
        // Where it moves less than once a slice, all of the census says how often.
        let span: f64 = self.measured.of_phase(PhaseKind::Census).map(Slice::span).sum();
        let each = if steps.fine > 1 {
            steps.fine_span / f64::from(steps.fine)
        } else {
            (span + steps.fine_span) / f64::from(steps.fine + steps.slices)
        };
        let wanted = Nanos(((each * WANTED / 1e8).ceil().max(1.0) * 1e8) as u64);
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

/// Time for some blocks of a few functions.
pub(super) fn time_for(slice: Nanos) -> Nanos {
    const SLICES: u64 = 100;
    let seconds = slice.0.saturating_mul(SLICES).div_ceil(1_000_000_000);
    Nanos(seconds.saturating_mul(1_000_000_000))
}
