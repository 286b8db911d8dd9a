//! Readings of the metrics: they have to take little of a slice, and what they count only grows.

use std::slice;

use super::{Runner, Stop};
use crate::{
    experiment::{
        metric::Reading,
        subject::{Sample, Subject, SubjectError},
    },
    units::Nanos,
};

/// Readings in a row of which each takes longer than a slice are no moment of the machine's when they take so
/// long together.
const SLOW: Nanos = Nanos(3_000_000_000);

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// What the latest ones took, as far as each took longer than a slice.
    slow: Nanos,
    /// What the longest of those took.
    longest: Nanos,
    /// Units of the latest one.
    units: f64,
}

impl Runner<'_> {
    /// A sample. Beyond a bound, delays end.
    pub(super) fn look(&mut self) -> Result<Sample, Stop> {
        let sample = self.timed(|subject| subject.sample())?;
        let before = std::mem::replace(&mut self.readings.units, sample.units);
        if sample.units < before {
            return Err(Stop::Metric(format!(
                "{} jumped back, from {before} to {}: a counter that begins anew, as of a worker that was \
                 replaced, is no measure of work",
                self.measured.unit.source, sample.units
            )));
        }
        if self.options.bounds.is_empty() {
            return Ok(sample);
        }
        self.window.add(&sample);
        if let Some(why) = self.window.broken(&self.options.bounds) {
            self.subject.set(&[])?;
            return Err(Stop::Guard(why));
        }
        Ok(sample)
    }

    /// What further metrics have counted.
    pub(super) fn look_further(&mut self) -> Result<Vec<(Nanos, Reading)>, Stop> {
        self.timed(|subject| subject.further())
    }

    /// Reads something. Where that takes longer than a slice, again and again, slices are none: delays last
    /// longer than they are to, and nobody sees what they do meanwhile.
    fn timed<T>(
        &mut self,
        read: impl FnOnce(&mut dyn Subject) -> Result<T, SubjectError>,
    ) -> Result<T, Stop> {
        let begun = self.subject.now();
        let read = read(self.subject)?;
        let took = Nanos(self.subject.now().0.saturating_sub(begun.0));
        let readings = &mut self.readings;
        if took <= self.times.slice {
            (readings.slow, readings.longest) = (Nanos(0), Nanos(0));
            return Ok(read);
        }
        readings.slow = readings.slow + took;
        readings.longest = readings.longest.max(took);
        if readings.slow < SLOW {
            return Ok(read);
        }
        let metrics = [slice::from_ref(&self.measured.unit.source), &self.measured.metrics[..]].concat();
        Err(Stop::Metric(format!(
            "{} takes {} to be read, and a slice {}: too long to be compared. Take longer slices \
             (--slice), or a metric that answers at once",
            metrics.join(" or "),
            Nanos(readings.longest.0.div_ceil(1_000_000) * 1_000_000),
            self.times.slice
        )))
    }
}

#[cfg(test)]
mod tests;
