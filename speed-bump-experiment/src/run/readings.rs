//! Readings of the metrics. A reading has to take little of a slice, and a counter only grows.

use super::{Runner, Stop};
use crate::{
    reading::Reading,
    subject::{Sample, Subject, SubjectError},
    units::Nanos,
};

/// A metric is too slow if consecutive readings, each longer than a slice, take this long together. Less may
/// be a bad moment of the machine.
const SLOW: Nanos = Nanos(3_000_000_000);

/// How long readings took, and what the latest one counted.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// Slow readings of the unit's own metric.
    unit: Slow,
    /// Slow readings of further metrics.
    further: Slow,
    /// Units in the latest reading.
    units: f64,
}

/// The latest consecutive readings that each took longer than a slice.
#[derive(Debug, Default)]
struct Slow {
    /// Their total time.
    sum: Nanos,
    /// The time of the longest one.
    longest: Nanos,
}

impl Slow {
    /// Adds a reading. Returns whether the metric is too slow.
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
    /// Reads a sample. Ends all delays if it breaks a bound.
    pub(super) fn sample(&mut self) -> Result<Sample, Stop> {
        let sample = self.timed(|subject| subject.sample(), |readings| &mut readings.unit)?;
        let before = std::mem::replace(&mut self.readings.units, sample.units);
        if sample.units < before {
            return Err(Stop::Metric(format!(
                "{} jumped back, from {before} to {}: a counter that starts again, as when a worker is \
                 replaced, does not measure work",
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

    /// Reads the further metrics.
    pub(super) fn read_further(&mut self) -> Result<Vec<(Nanos, Option<Reading>)>, Stop> {
        if self.options.runs {
            // We read these metrics between two runs, so a slow reading does not make a delay longer.
            return Ok(self.subject.further()?);
        }
        self.timed(|subject| subject.further(), |readings| &mut readings.further)
    }

    /// Reads something. Fails if that takes longer than a slice, again and again: delays would last longer
    /// than planned, and no guard would check them meanwhile.
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
