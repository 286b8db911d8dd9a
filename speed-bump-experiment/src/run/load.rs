//! Whether the service is still under the load that it was under. Where it is not, slices are dropped, and
//! delays end until it is.
//!
//! A delay slows units down, by what arrived of it. Slices in which units come far more seldom than that
//! explains, or far more often than ever, are looked at again *without delays*: only where those are as odd
//! is it the load. So whether a slice with delays counts does not depend on how slow it was, which would bias
//! what is left. What is dropped is everything since the last slice that was as before.

use std::collections::VecDeque;

use super::{Runner, Stop};
use crate::{
    analysis::load,
    record::{By, LoadChange, Mark, Slice, Treatment},
    subject::Sample,
    units::Nanos,
};

/// So many of the latest slices are compared with: load that changes slowly is followed.
const RECENT: usize = 32;
/// Of those, one in ten may be far off.
const FAR_OFF: usize = 10;
/// With fewer of them it is not known how fast units may come.
const MIN_RECENT: usize = 4;
/// It is another load where units come so many times as fast or as seldom. Machines get half as slow again by
/// themselves, or twice for a moment.
const CHANGED: f64 = 2.5;
/// A slice had all of its load where units took no more than so many times as long as in most.
const USUAL: f64 = 1.3;
/// A delay shows several times where a lock is handed on meanwhile, but not more often than this.
const SHOWS: f64 = 4.0;
/// Where fewer units are expected in a slice, chance may leave out most of them.
const MIN_UNITS: f64 = 5.0;
/// Where so many are expected and none comes, that slice has nothing to say of any function.
const DOZENS: f64 = 24.0;
/// So many slices without delays have to be as odd: one is a moment of the machine's.
const LOOKS: usize = 2;
/// Load that goes away in this part of all the time, at its end, takes nothing with it.
const LATE: u64 = 10;
/// And so many have to be as before until the load is back.
const BACK: usize = 2;

/// What is known of the load.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Time per unit of the latest slices that were as before, in ns.
    recent: VecDeque<f64>,
    /// Before there are any.
    census: f64,
    /// How many units were expected in the latest slices, as far as all of them are without any.
    silent: f64,
    /// How often functions are called in a slice that was as before, per ns.
    usual_calls: Option<f64>,
    /// The same of the latest slice.
    calls: f64,
    /// Units that were under way at its end, where that is known.
    under_way: Option<u64>,
    /// Whether it was started again, and no unit has come since.
    is_starting: bool,
    /// Until when it is waited for, while it is.
    pub(super) waits_until: Option<Nanos>,
}

impl Load {
    /// Where a unit took so many ns when calls were counted.
    pub(super) fn new(census: f64) -> Self {
        Self { census, ..Self::default() }
    }

    /// Takes what was called from one edge of the slice that was just measured to the other.
    pub(super) fn note_calls(&mut self, start: &Sample, end: &Sample) {
        let calls = |sample: &Sample| sample.counts.iter().map(|of| of.calls as f64).sum::<f64>();
        let span = end.at.0.saturating_sub(start.at.0).max(1) as f64;
        (self.calls, self.under_way) = ((calls(end) - calls(start)) / span, end.under_way);
    }

    /// Of a slice that was as before, the one that was just measured.
    fn add_latest(&mut self, slice: &Slice) {
        self.add(slice);
        self.usual_calls = Some(self.calls);
    }

    /// How often functions were called in the latest slice, as a share of how often they were before.
    fn calls_left(&self) -> Option<f64> {
        self.usual_calls.filter(|usual| *usual > 0.0).map(|usual| self.calls / usual)
    }

    /// Of a slice that was as before.
    fn add(&mut self, slice: &Slice) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(slice.time_per_unit(By::Throughput));
    }

    /// Time per unit at this place of the latest ones, from the fastest to the slowest.
    fn at(&self, place: impl Fn(usize) -> usize) -> Option<f64> {
        let mut recent: Vec<f64> = self.recent.iter().copied().collect();
        recent.sort_unstable_by(f64::total_cmp);
        recent.get(place(recent.len())).copied()
    }

    /// How many units there have to be in a slice, for all that its delays explain.
    fn expected(&self, slice: &Slice) -> f64 {
        let far_off = |count: usize| count.saturating_sub(1 + count / FAR_OFF);
        let slowest = self.at(far_off).unwrap_or(self.census);
        let delayed: f64 = slice.delivered.iter().map(|of| of.delivered_ns.0 as f64).sum();
        (slice.span() - SHOWS * delayed).max(0.0) / slowest
    }

    /// A slice was measured, whatever it is for.
    fn hear(&mut self, slice: &Slice) {
        self.silent = if slice.units == 0.0 { self.silent + self.expected(slice) } else { 0.0 };
    }

    /// Whether units of a slice, which was heard of, came as nobody's delay explains. Where few come in one,
    /// that none does is seen in several.
    fn is_odd(&self, slice: &Slice) -> bool {
        let expected = if slice.units == 0.0 { self.silent } else { self.expected(slice) };
        let are_few = expected >= MIN_UNITS && slice.units < expected / CHANGED;
        let fastest = self.at(|count| count / FAR_OFF).filter(|_| self.recent.len() >= MIN_RECENT);
        let most = fastest.map_or(f64::INFINITY, |fastest| slice.span() / fastest);
        are_few || slice.units >= MIN_UNITS && slice.units > most * CHANGED
    }

    /// Whether units of a slice took about as long as in most others: then it had all of its load.
    fn is_usual(&self, slice: &Slice) -> bool {
        self.rate(slice) * USUAL > 1.0
    }

    /// How often units of a slice came, against what is usual.
    fn rate(&self, slice: &Slice) -> f64 {
        let usual = self.at(|count| count / 2).unwrap_or(self.census);
        if slice.span() > 0.0 { slice.units * usual / slice.span() } else { 0.0 }
    }
}

impl Runner<'_> {
    /// Whether a slice that was just measured, the last one, was under the load. If it was not, it does not
    /// count, and the load is back.
    pub(super) fn is_under_load(&mut self, block: u32, slice: &Slice) -> Result<bool, Stop> {
        if slice.marks.contains(&Mark::Load) {
            self.wait_for_started_load(block)?;
            return Ok(false);
        }
        if slice.marks.contains(&Mark::Late) {
            return Ok(true);
        }
        self.load.hear(slice);
        if !self.load.is_odd(slice) {
            if slice.counts() && slice.units > 0.0 {
                self.load.add_latest(slice);
            }
            return Ok(true);
        }
        let first = self.measured.slices.len().saturating_sub(1);
        for _ in 0..LOOKS {
            let look = self.look_at_load(block)?;
            if self.load.is_odd(&look) {
                continue;
            }
            // A load asks for nothing any more some time before its command has ended.
            if self.has_load_started_again(slice.start_ns) {
                self.drop_slice(first);
                return Ok(false);
            }
            let is_empty = slice.units == 0.0 && self.load.expected(slice) >= DOZENS;
            if is_empty {
                self.drop_slice(first);
                self.note_change(slice, slice, slice.end_ns)?;
            }
            return Ok(!is_empty);
        }
        self.wait_for_load(block, first)?;
        Ok(false)
    }

    /// The same of the first slices of all, from this one on, which there was nothing to compare with:
    /// whether the load was there until their end.
    pub(super) fn was_under_load(&mut self, block: u32, first: usize) -> Result<bool, Stop> {
        let mut odd = Vec::new();
        for (index, slice) in self.measured.slices.iter().enumerate().skip(first) {
            if !slice.counts() {
                continue;
            }
            self.load.hear(slice);
            if self.load.is_odd(slice) {
                odd.push(index);
            } else if slice.units > 0.0 {
                odd.clear();
                self.load.add(slice);
            }
        }
        match odd.first() {
            Some(&first) if odd.len() > LOOKS => {
                self.wait_for_load(block, first)?;
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// Whether slices of the end were under the load: nothing is left to wait for.
    pub(super) fn was_under_load_at_end(&mut self, first: usize) -> bool {
        let mut odd = 0;
        for slice in self.measured.slices.iter().skip(first) {
            self.load.hear(slice);
            odd = if self.load.is_odd(slice) { odd + 1 } else { 0 };
        }
        if odd <= LOOKS {
            return true;
        }
        self.drop_since(self.measured.slices.len() - odd);
        false
    }

    /// A slice without delays that counts for nothing but this.
    fn look_at_load(&mut self, block: u32) -> Result<Slice, Stop> {
        let slice = self.measure(block, Treatment::Control, &[])?;
        self.load.hear(&slice);
        self.drop_slice(self.measured.slices.len().saturating_sub(1));
        Ok(slice)
    }

    /// Whether the command that makes the load was started again after this time, or no unit had come since,
    /// before the slice that was just measured. In the slice of the first unit the load may be there in part.
    pub(super) fn is_load_starting(&mut self, since: Nanos, has_units: bool) -> bool {
        let is_new = self.has_load_started_again(since);
        let was_starting = self.load.is_starting;
        self.load.is_starting = is_new || was_starting && !has_units;
        is_new || was_starting
    }

    /// Whether the command that makes the load ended after this time, and was started again.
    pub(super) fn has_load_started_again(&self, since: Nanos) -> bool {
        self.subject.load_started_again().is_some_and(|at| at >= since)
    }

    /// Waits, without delays, until units come as before. Slices from the first odd one on are dropped.
    fn wait_for_load(&mut self, block: u32, first: usize) -> Result<(), Stop> {
        self.drop_since(first);
        let Some(odd) = self.measured.slices.get(first).cloned() else { return Ok(()) };
        self.load.waits_until = Some(self.waits_for_load_until().0);
        let last = self.wait_until_as_before(block, &odd)?;
        self.load.waits_until = None;
        let now = self.subject.now();
        self.note_change(&odd, &last, now)
    }

    /// The same after the load was started again in the latest slice, which no delay explains, and which is
    /// no change of the load.
    fn wait_for_started_load(&mut self, block: u32) -> Result<(), Stop> {
        let Some(odd) = self.measured.slices.last().cloned() else { return Ok(()) };
        self.wait_until_as_before(block, &odd).map(|_| ())
    }

    /// Until when load is waited for, and whether all of the time is over then.
    fn waits_for_load_until(&self) -> (Nanos, bool) {
        let patience = self.subject.now() + Nanos::from(self.options.wait_load);
        let ends = self.begun + Nanos::from(self.options.total);
        (patience.min(ends), ends < patience)
    }

    /// Waits, without delays, until units come as before this slice. Returns the last one in which they did
    /// not.
    fn wait_until_as_before(&mut self, block: u32, odd: &Slice) -> Result<Slice, Stop> {
        self.subject.set(&[])?;
        let (until, is_all) = self.waits_for_load_until();
        // The first odd one may have begun under the load.
        let mut last = self.measured.slices.last().unwrap_or(odd).clone();
        let (mut back, mut waits) = (0, 0);
        while back < BACK {
            if self.subject.now() >= until {
                // What was measured before is nearly all that there was time for.
                let was_late =
                    until.0.saturating_sub(odd.start_ns.0) < Nanos::from(self.options.total).0 / LATE;
                if is_all && was_late {
                    self.note_change(odd, &last, until)?;
                    return Err(Stop::TimeWithoutLoad);
                }
                let change = self.change(odd, &last, None);
                let said = load::said(&self.measured, &change);
                self.measured.load_changes.push(change);
                return Err(Stop::Load(said));
            }
            // However long it takes, one slice of it is kept.
            if waits > 0 && back == 0 {
                self.measured.slices.pop();
            }
            let look = self.look_at_load(block)?;
            waits += 1;
            if self.load.is_odd(&look) {
                (back, last) = (0, look);
            } else {
                back += 1;
            }
        }
        Ok(last)
    }

    /// Keeps that the load was away until then. Where it goes again and again, and each time while something
    /// is delayed, it goes for that.
    fn note_change(&mut self, odd: &Slice, last: &Slice, until: Nanos) -> Result<(), Stop> {
        let change = self.change(odd, last, Some(until));
        self.measured.load_changes.push(change);
        load::driven_away(&self.measured).map_or(Ok(()), |why| Err(Stop::Load(why)))
    }

    fn change(&self, odd: &Slice, last: &Slice, end: Option<Nanos>) -> LoadChange {
        LoadChange {
            start_ns: odd.start_ns,
            end_ns: end,
            waited_until_ns: self.subject.now(),
            rate: self.load.rate(last),
            calls: self.load.calls_left(),
            unanswered: self.load.under_way,
            // A command that ends by itself is driven away by no delay.
            delayed: self.had_delays(odd) && !self.has_load_started_again(odd.start_ns),
        }
    }

    /// Whether this slice or the one before it had delays: clients take a moment to notice.
    fn had_delays(&self, odd: &Slice) -> bool {
        let slices = &self.measured.slices;
        let at = slices.iter().rposition(|slice| slice.start_ns == odd.start_ns);
        let before = at.and_then(|at| slices.get(at.checked_sub(1)?));
        [Some(odd), before].into_iter().flatten().any(|slice| !slice.doses.is_empty())
    }

    /// Drops the slices after the last one that was as before, of those before this one.
    fn drop_since(&mut self, first: usize) {
        let before = self.measured.slices.iter().take(first);
        let is_known = |slice: &Slice| slice.counts() && self.load.is_usual(slice);
        let known = before.collect::<Vec<_>>().into_iter().rposition(is_known);
        let from = known.map_or(0, |known| known + 1);
        (from..self.measured.slices.len()).for_each(|index| self.drop_slice(index));
    }

    fn drop_slice(&mut self, index: usize) {
        if let Some(slice) = self.measured.slices.get_mut(index)
            && !slice.marks.contains(&Mark::Load)
        {
            slice.marks.push(Mark::Load);
        }
    }
}

#[cfg(test)]
mod tests;
