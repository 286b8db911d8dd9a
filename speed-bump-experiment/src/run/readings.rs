//! Readings of the metrics: they have to take little of a slice, and what they count only grows.

use super::{Runner, Stop};
use crate::{
    reading::Reading,
    subject::{Sample, Subject, SubjectError},
    units::Nanos,
};

/// Readings in a row of which each takes longer than a slice are no moment of the machine's when they take so
/// long together.
const SLOW: Nanos = Nanos(3_000_000_000);

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// Those of the unit's own metric.
    unit: Slow,
    /// Those of further metrics.
    further: Slow,
    /// Units of the latest one.
    units: f64,
}

/// The latest readings, as far as each took longer than a slice.
#[derive(Debug, Default)]
struct Slow {
    /// What they took together.
    sum: Nanos,
    /// What the longest one took.
    longest: Nanos,
}

impl Slow {
    /// Whether they are too many, with this one.
    fn add(&mut self, took: Nanos, slice: Nanos) -> bool {
        if took <= slice {
            *self = Self::default();
            return false;
        }
        (self.sum, self.longest) = (self.sum + took, self.longest.max(took));
        self.sum >= SLOW
    }
}

impl Runner<'_> {
    /// A sample. Beyond a bound, delays end.
    pub(super) fn look(&mut self) -> Result<Sample, Stop> {
        let sample = self.timed(|subject| subject.sample(), |readings| &mut readings.unit)?;
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
    pub(super) fn look_further(&mut self) -> Result<Vec<(Nanos, Option<Reading>)>, Stop> {
        if self.options.runs {
            // Beside the runs, which have their own time.
            return Ok(self.subject.further()?);
        }
        self.timed(|subject| subject.further(), |readings| &mut readings.further)
    }

    /// Reads something. Where that takes longer than a slice, again and again, slices are none: delays last
    /// longer than they are to, and nobody sees what they do meanwhile.
    fn timed<T>(
        &mut self,
        read: impl FnOnce(&mut dyn Subject) -> Result<T, SubjectError>,
        slow: impl FnOnce(&mut Readings) -> &mut Slow,
    ) -> Result<T, Stop> {
        let begun = self.subject.now();
        let read = read(self.subject)?;
        let took = Nanos(self.subject.now().0.saturating_sub(begun.0));
        let slow = slow(&mut self.readings);
        if !slow.add(took, self.times.slice) {
            return Ok(read);
        }
        let longest = slow.longest;
        let metrics = [std::slice::from_ref(&self.measured.unit.source), &self.measured.metrics[..]].concat();
        Err(Stop::Metric(format!(
            "{} takes {} to be read, and a slice {}: too long to be compared. Take longer slices \
             (--slice), or a metric that answers at once",
            metrics.join(" or "),
            Nanos(longest.0.div_ceil(1_000_000) * 1_000_000),
            self.times.slice
        )))
    }
}

#[cfg(test)]
mod tests;
