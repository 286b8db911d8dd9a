//! One slice: doses, what settles, what is measured, and the guard that looks on.

use super::{Now, Runner, Stop};
use crate::{
    experiment::{
        record::{Delivered, Mark, Slice, Treatment},
        subject::Sample,
    },
    units::Nanos,
};

/// How often the guard looks.
const LOOKS: Nanos = Nanos(100_000_000);
/// A slow-down is believed from this many times on by which slices without delays differ.
const BELIEVED: f64 = 2.0;
/// From this many ns on the ends of slices wait for a unit to be done.
const LONG_UNIT: f64 = 2e6;
/// In pieces of so many a unit.
const EDGE_PIECES: f64 = 32.0;
/// At most for so many units.
const EDGE_UNITS: f64 = 2.0;
/// The tool is late from this part of a slice on.
const LATE: u64 = 10;

impl Runner<'_> {
    /// Measures a slice with these doses, and keeps it. Where units get slower than they may, delays end, and
    /// so does the slice.
    pub(super) fn slice(
        &mut self,
        block: u32,
        treatment: Treatment,
        doses: &[(u32, Nanos)],
    ) -> Result<Slice, Stop> {
        let in_force = self.subject.set(doses)?;
        let from = in_force + self.times.burn_in;
        let to = from + self.times.slice;
        let first = self.subject.sample()?;
        let mut guarded = self.watch_until(from, &first, doses)?;
        let start = self.edge(guarded)?;
        if !guarded {
            guarded = self.watch_until(to, &first, doses)?;
        }
        let end = self.edge(guarded)?;
        if guarded {
            self.subject.set(&[])?;
        }
        let allowed = self.times.slice.0 / LATE
            + if self.unit < LONG_UNIT { 0 } else { (self.unit * EDGE_UNITS) as u64 };
        let late = |planned: Nanos, at: Nanos| at.0.saturating_sub(planned.0) > allowed;
        let mut marks = Vec::new();
        if late(from, start.at) || (!guarded && late(to, end.at)) {
            marks.push(Mark::Late);
        }
        let is_short = end.at.0.saturating_sub(start.at.0) < self.times.slice.0 / 4;
        if guarded && is_short {
            marks.push(Mark::Guarded);
        }
        let slice = Slice {
            phase: self.phase,
            block,
            treatment,
            start_ns: start.at,
            end_ns: end.at,
            doses: doses.to_vec(),
            delivered: delivered(doses, &start, &end),
            units: end.units - start.units,
            guarded,
            marks,
        };
        self.measured.slices.push(slice.clone());
        let slowdown = (self.unit > 0.0).then(|| slice.time_per_unit() / self.unit - 1.0);
        (self.watch)(&self.measured, Now { phase: self.phase, ends: self.ends, slowdown });
        Ok(slice)
    }

    /// A sample for the edge of a slice: where units take long, right after one was done, so that no part of
    /// one is lost. `at_once`: now.
    fn edge(&mut self, at_once: bool) -> Result<Sample, Stop> {
        let mut sample = self.subject.sample()?;
        if at_once || self.unit < LONG_UNIT {
            return Ok(sample);
        }
        let (before, piece) = (sample.units, Nanos((self.unit / EDGE_PIECES) as u64));
        let until = sample.at + Nanos((self.unit * EDGE_UNITS) as u64);
        while sample.units == before && sample.at < until {
            self.subject.wait_until(sample.at + piece)?;
            sample = self.subject.sample()?;
        }
        Ok(sample)
    }

    /// Waits until then; `true`: units got too slow since this sample, and it did not wait any longer.
    fn watch_until(&mut self, time: Nanos, since: &Sample, doses: &[(u32, Nanos)]) -> Result<bool, Stop> {
        if doses.is_empty() {
            self.subject.wait_until(time)?;
            return Ok(false);
        }
        loop {
            let now = self.subject.now();
            if now >= time {
                return Ok(false);
            }
            self.subject.wait_until((now + LOOKS).min(time))?;
            let sample = self.subject.sample()?;
            if self.is_too_slow(sample.at.0.saturating_sub(since.at.0), sample.units - since.units) {
                return Ok(true);
            }
        }
    }

    /// Whether so few units in so many ns are fewer than noise makes of those that there have to be.
    fn is_too_slow(&self, ns: u64, units: f64) -> bool {
        let usual = ns as f64 / self.unit;
        let least = usual / (1.0 + self.measured.rules.max_slowdown);
        // Shorter stretches differ more, and may lack a part of a unit at each end.
        let noise = self.noise * (self.times.slice.0 as f64 / (ns as f64).max(1.0)).sqrt();
        units + 1.0 < least - BELIEVED * noise * usual
    }

    /// Whether units of a whole slice took longer than they may.
    pub(super) fn was_too_slow(&self, slice: &Slice) -> bool {
        slice.guarded || slice.time_per_unit() > self.unit * (1.0 + self.measured.rules.max_slowdown)
    }
}

/// What the candidates with doses were called and delayed between two samples.
fn delivered(doses: &[(u32, Nanos)], start: &Sample, end: &Sample) -> Vec<Delivered> {
    let of = |(candidate, _): &(u32, Nanos)| {
        let at = |sample: &Sample| sample.counts.get(*candidate as usize).copied().unwrap_or_default();
        let (before, after) = (at(start), at(end));
        Delivered {
            candidate: *candidate,
            calls: after.calls.saturating_sub(before.calls),
            asked_ns: Nanos(after.asked.0.saturating_sub(before.asked.0)),
            delivered_ns: Nanos(after.delivered.0.saturating_sub(before.delivered.0)),
        }
    };
    doses.iter().map(of).collect()
}
