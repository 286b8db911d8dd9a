//! Checks that the service is still under its load. If it is not, drops slices, and waits without delays
//! until it is.
//!
//! A slice is *odd* if its units come far more seldom than its delivered delays explain, or far more often
//! than ever. Then two more slices are measured *without delays*: only if these are odd too, the load has
//! changed. So whether a slice with delays counts does not depend on how slow it was, which would bias the
//! rest. If the load has changed, everything since the last normal slice is dropped.

use std::collections::VecDeque;

use super::{Runner, Stop};
use crate::{
    analysis::load,
    record::{By, LoadChange, Mark, Slice, Treatment},
    subject::Sample,
    units::Nanos,
};

/// The number of latest slices to compare with: slow changes of the load are not odd.
const RECENT: usize = 32;
/// One in this many of the latest slices may be an outlier.
const FAR_OFF: usize = 10;
/// With fewer of the latest slices, it is unknown how fast units may come.
const MIN_RECENT: usize = 4;
/// A slice is odd if units come this many times as often or as seldom. Without a change of load, units take
/// half as long again on some machines, or twice as long for a moment.
const CHANGED: f64 = 2.5;
/// A slice is normal if units took at most this many times as long as in most slices.
const USUAL: f64 = 1.3;
/// A delay shows at most this many times: several times, if a lock is handed on meanwhile.
const SHOWS: f64 = 4.0;
/// If fewer units are expected in a slice, most of them may be missing by chance.
const MIN_UNITS: f64 = 5.0;
/// If this many units are expected and none comes, the slice says nothing about functions.
const DOZENS: f64 = 24.0;
/// This many slices without delays have to be odd too: a single one may be a bad moment of the machine.
const CHECKS: usize = 2;
/// If the load goes away in the last part of the time, verdicts stand. The last part is the time divided by
/// this.
const LATE: u64 = 10;
/// This many slices in a row have to be as before until the load is back.
const CHECKS_UNTIL_BACK: usize = 2;

/// What is known of the load.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Time per unit of the latest slices that were as before, in ns.
    recent: VecDeque<f64>,
    /// Time per unit in the census, in ns: for the first slices.
    census: f64,
    /// Units that were expected in the slices since the last one with units.
    silent: f64,
    /// Calls of all functions per ns, in the latest slice that was as before.
    usual_calls: Option<f64>,
    /// Calls of all functions per ns, in the latest slice.
    calls: f64,
    /// Units that were under way at the end of the latest slice; `None` if unknown.
    under_way: Option<u64>,
    /// Whether the load's command was started again, and no unit has come since.
    is_starting: bool,
    /// When that was last checked.
    checked: Option<Nanos>,
    /// Until when the experiment waits for the load; `None` while it does not wait.
    pub(super) waits_until: Option<Nanos>,
}

impl Load {
    /// `census` is the time per unit in the census, in ns.
    pub(super) fn new(census: f64) -> Self {
        Self { census, ..Self::default() }
    }

    /// Notes the calls in the slice that was just measured, from edge to edge.
    pub(super) fn note_calls(&mut self, start: &Sample, end: &Sample) {
        let calls = |sample: &Sample| sample.counts.iter().map(|of| of.calls as f64).sum::<f64>();
        let span = end.at.0.saturating_sub(start.at.0).max(1) as f64;
        (self.calls, self.under_way) = ((calls(end) - calls(start)) / span, end.under_way);
    }

    /// Adds the slice that was just measured, which was as before.
    fn add_latest(&mut self, slice: &Slice) {
        self.add(slice);
        self.usual_calls = Some(self.calls);
    }

    /// The rate of calls in the latest slice, as a share of the rate before.
    fn calls_left(&self) -> Option<f64> {
        self.usual_calls.filter(|usual| *usual > 0.0).map(|usual| self.calls / usual)
    }

    /// Adds a slice that was as before.
    fn add(&mut self, slice: &Slice) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(slice.time_per_unit(By::Throughput));
    }

    /// One of the latest times per unit, by its place from the fastest to the slowest. `place` chooses it,
    /// given their number.
    fn ranked(&self, place: impl Fn(usize) -> usize) -> Option<f64> {
        let mut recent: Vec<f64> = self.recent.iter().copied().collect();
        recent.sort_unstable_by(f64::total_cmp);
        recent.get(place(recent.len())).copied()
    }

    /// The least number of units in a slice that its delays explain.
    fn expected(&self, slice: &Slice) -> f64 {
        let far_off = |count: usize| count.saturating_sub(1 + count / FAR_OFF);
        let slowest = self.ranked(far_off).unwrap_or(self.census);
        let delayed: f64 = slice.delivered.iter().map(|of| of.delivered_ns.0 as f64).sum();
        (slice.span() - SHOWS * delayed).max(0.0) / slowest
    }

    /// Notes a slice that was measured, whatever its purpose.
    fn note_slice(&mut self, slice: &Slice) {
        self.silent = if slice.units == 0.0 { self.silent + self.expected(slice) } else { 0.0 };
    }

    /// Whether a slice, which was noted, is odd. If slices have few units, only several slices in a row
    /// without any unit are odd.
    fn is_odd(&self, slice: &Slice) -> bool {
        let expected = if slice.units == 0.0 { self.silent } else { self.expected(slice) };
        let are_few = expected >= MIN_UNITS && slice.units < expected / CHANGED;
        let fastest = self.ranked(|count| count / FAR_OFF).filter(|_| self.recent.len() >= MIN_RECENT);
        let most = fastest.map_or(f64::INFINITY, |fastest| slice.span() / fastest);
        are_few || slice.units >= MIN_UNITS && slice.units > most * CHANGED
    }

    /// Whether units of a slice took about as long as in most others: then the slice had all of the load.
    fn is_usual(&self, slice: &Slice) -> bool {
        self.rate(slice) * USUAL > 1.0
    }

    /// The rate of units in a slice, as a share of the usual rate.
    fn rate(&self, slice: &Slice) -> f64 {
        let usual = self.ranked(|count| count / 2).unwrap_or(self.census);
        if slice.span() > 0.0 { slice.units * usual / slice.span() } else { 0.0 }
    }
}

impl Runner<'_> {
    /// Whether the latest slice, which was just measured, was under the load. If it was not, waits until the
    /// load is back; the slice does not count then.
    pub(super) fn is_under_load(&mut self, block: u32, slice: &Slice) -> Result<bool, Stop> {
        if slice.marks.contains(&Mark::Load) {
            self.wait_for_started_load(block)?;
            return Ok(false);
        }
        if slice.marks.contains(&Mark::Late) {
            return Ok(true);
        }
        self.load.note_slice(slice);
        if !self.load.is_odd(slice) {
            if slice.counts() && slice.units > 0.0 {
                self.load.add_latest(slice);
            }
            return Ok(true);
        }
        let first = self.measured.slices.len().saturating_sub(1);
        for _ in 0..CHECKS {
            let check = self.check_load(block)?;
            if self.load.is_odd(&check) {
                continue;
            }
            // A load sends its last request some time before its command ends.
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

    /// As [`is_under_load`](Self::is_under_load), for the first slices of all, from this one on, which had
    /// nothing to compare with: whether the load was there until their end.
    pub(super) fn was_under_load(&mut self, block: u32, first: usize) -> Result<bool, Stop> {
        let mut odd = Vec::new();
        for (index, slice) in self.measured.slices.iter().enumerate().skip(first) {
            if !slice.counts() {
                continue;
            }
            self.load.note_slice(slice);
            if self.load.is_odd(slice) {
                odd.push(index);
            } else if slice.units > 0.0 {
                odd.clear();
                self.load.add(slice);
            }
        }
        match odd.first() {
            Some(&first) if odd.len() > CHECKS => {
                self.wait_for_load(block, first)?;
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// Whether the slices at the end, from this one on, were under the load. Does not wait: nothing follows.
    pub(super) fn was_under_load_at_end(&mut self, first: usize) -> bool {
        let mut odd = 0;
        for slice in self.measured.slices.iter().skip(first) {
            self.load.note_slice(slice);
            odd = if self.load.is_odd(slice) { odd + 1 } else { 0 };
        }
        if odd <= CHECKS {
            return true;
        }
        self.drop_since(self.measured.slices.len() - odd);
        false
    }

    /// Measures a slice without delays, only to check the load.
    fn check_load(&mut self, block: u32) -> Result<Slice, Stop> {
        let slice = self.measure(block, Treatment::Control, &[])?;
        self.load.note_slice(&slice);
        self.drop_slice(self.measured.slices.len().saturating_sub(1));
        Ok(slice)
    }

    /// Whether the load's command was started again after this time, or earlier, with no unit before the
    /// slice that was just measured. In the slice of the first unit, the load may not be complete.
    pub(super) fn is_load_starting(&mut self, since: Nanos, has_units: bool) -> bool {
        // It may have started between two slices, while verdicts were computed.
        let checked = self.load.checked.replace(self.subject.now());
        let is_new = self.has_load_started_again(checked.map_or(since, |checked| checked.min(since)));
        let was_starting = self.load.is_starting;
        self.load.is_starting = is_new || was_starting && !has_units;
        is_new || was_starting
    }

    /// Whether the command that makes the load ended after this time, and was started again.
    pub(super) fn has_load_started_again(&self, since: Nanos) -> bool {
        self.subject.load_started_again().is_some_and(|at| at >= since)
    }

    /// Drops the slices from the first odd one on. Waits, without delays, until units come as before.
    fn wait_for_load(&mut self, block: u32, first: usize) -> Result<(), Stop> {
        self.drop_since(first);
        let Some(odd) = self.measured.slices.get(first).cloned() else { return Ok(()) };
        self.load.waits_until = Some(self.waits_for_load_until().0);
        let last = self.wait_until_as_before(block, &odd)?;
        self.load.waits_until = None;
        let now = self.subject.now();
        self.note_change(&odd, &last, now)
    }

    /// As [`wait_for_load`](Self::wait_for_load), after the load's command was started again in the latest
    /// slice. No delay caused the end of the load, so this does not count as a change of the load.
    fn wait_for_started_load(&mut self, block: u32) -> Result<(), Stop> {
        let Some(odd) = self.measured.slices.last().cloned() else { return Ok(()) };
        self.wait_until_as_before(block, &odd).map(|_| ())
    }

    /// Until when to wait for the load, and whether all of the time is over then.
    fn waits_for_load_until(&self) -> (Nanos, bool) {
        let patience = self.subject.now() + Nanos::from(self.options.wait_load);
        let ends = self.begun + Nanos::from(self.options.total);
        (patience.min(ends), ends < patience)
    }

    /// Waits, without delays, until units come as before the odd slice. Returns the last odd slice.
    fn wait_until_as_before(&mut self, block: u32, odd: &Slice) -> Result<Slice, Stop> {
        self.subject.set(&[])?;
        let (until, is_all) = self.waits_for_load_until();
        // The first odd slice may have begun under the load.
        let mut last = self.measured.slices.last().unwrap_or(odd).clone();
        let (mut back, mut waits) = (0, 0);
        while back < CHECKS_UNTIL_BACK {
            if self.subject.now() >= until {
                // The load was there for nearly all of the time.
                let was_late =
                    until.0.saturating_sub(odd.start_ns.0) < Nanos::from(self.options.total).0 / LATE;
                if is_all && was_late {
                    self.note_change(odd, &last, until)?;
                    return Err(Stop::TimeWithoutLoad);
                }
                let change = self.change(odd, &last, None);
                let said = load::describe(&self.measured, &change);
                self.measured.load_changes.push(change);
                return Err(Stop::Load(said));
            }
            // Keeps one slice of the wait, however long it takes.
            if waits > 0 && back == 0 {
                self.measured.slices.pop();
            }
            let check = self.check_load(block)?;
            waits += 1;
            if self.load.is_odd(&check) {
                (back, last) = (0, check);
            } else {
                back += 1;
            }
        }
        Ok(last)
    }

    /// Records that the load was away until this time. Fails if it went away repeatedly, each time while
    /// functions were delayed: then delays may be the cause.
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
            // If its command ended by itself, no delay drove the load away.
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

    /// Drops all slices after the last normal one before this one.
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
