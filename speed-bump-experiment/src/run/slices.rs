//! One slice: sets doses, lets them settle, and measures, while the guard checks the service.

use std::collections::BTreeMap;

use super::{Now, Runner, Stop};
use crate::{
    analysis::failed::failed,
    bound::MIN_LATENCIES,
    latencies::LatencyCounts,
    outliers::median,
    reading::Reading,
    record::{By, Delivered, Mark, MetricReading, PhaseKind, Slice, Treatment},
    subject::Sample,
    units::Nanos,
};

/// How often the guard checks the service.
pub(super) const GUARD_PERIOD: Nanos = Nanos(100_000_000);
/// The guard compares with the median of this many slices.
const LATEST: usize = 16;
/// A slow-down counts if it is at least this many times the noise of slices without delays.
const BELIEVED: f64 = 2.0;
/// If units take longer than this, in ns, slices end when a unit is done.
const LONG_UNIT: f64 = 2e6;
/// How often to poll for the end of a unit, per unit.
const EDGE_PIECES: f64 = 32.0;
/// How long to wait for the end of a unit at most, in units.
const EDGE_UNITS: f64 = 2.0;
/// The tool is late if a slice takes longer than planned by more than its own length, and by more than this:
/// the tool was stopped, or had no processor. Being less late does no harm, since the tool counts from edge
/// to edge.
const LATE: Nanos = Nanos(100_000_000);

/// The counts at a time from which the guard counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    at: Nanos,
    units: f64,
    latency: Option<f64>,
}

impl Edge {
    fn new(sample: &Sample) -> Self {
        Self { at: sample.at, units: sample.units, latency: sample.latency }
    }
}

impl Runner<'_> {
    /// Measures a slice with these doses. If the load was not there, waits for it and measures the slice
    /// again.
    pub(super) fn slice(
        &mut self,
        block: u32,
        treatment: Treatment,
        doses: &[(u32, Nanos)],
    ) -> Result<Slice, Stop> {
        self.check_time()?;
        if self.options.runs {
            return self.run_of_benchmark(block, treatment, doses);
        }
        loop {
            let slice = self.measure(block, treatment, doses)?;
            if self.is_under_load(block, &slice)? {
                // Without delays, no request fails because of them.
                if !doses.is_empty()
                    && slice.failed.is_some_and(|failed| failed > 0.0)
                    && let Some(why) = failed(&self.measured)
                {
                    return Err(Stop::Invalid(why));
                }
                self.update_pace(&slice);
                return Ok(slice);
            }
        }
    }

    /// Measures a slice with these doses, and keeps it. If units get slower than they may, ends all delays
    /// and the slice.
    pub(super) fn measure(
        &mut self,
        block: u32,
        treatment: Treatment,
        doses: &[(u32, Nanos)],
    ) -> Result<Slice, Stop> {
        let in_force = self.subject.set(doses)?;
        let from = in_force + self.times.burn_in;
        let to = from + self.times.slice;
        let first = self.sample()?;
        self.note_edge(&first);
        let mut guarded = self.watch_until(from)?;
        let start = self.edge(guarded)?;
        let before = self.read_further()?;
        if !guarded {
            guarded = self.watch_until(to)?;
        }
        let end = self.edge(guarded)?;
        if guarded {
            self.subject.set(&[])?;
        }
        let after = self.read_further()?;
        self.load.note_calls(&start, &end);
        let allowed = self.times.slice.0.max(LATE.0)
            + if self.pace < LONG_UNIT { 0 } else { (self.pace * EDGE_UNITS) as u64 };
        let late = |planned: Nanos, at: Nanos| at.0.saturating_sub(planned.0) > allowed;
        let mut marks = Vec::new();
        if late(from, start.at) || (!guarded && late(to, end.at)) {
            marks.push(Mark::Late);
        }
        let is_short = end.at.0.saturating_sub(start.at.0) < self.times.slice.0 / 4;
        if guarded && is_short {
            marks.push(Mark::Guarded);
        }
        if self.is_load_starting(in_force, end.units > start.units) {
            marks.push(Mark::Load);
        }
        let latencies = end.latencies.as_ref().zip(start.latencies.as_ref());
        let latencies = latencies.map(|(end, start)| end.since(start));
        let slice = Slice {
            phase: self.phase,
            block,
            treatment,
            start_ns: start.at,
            end_ns: end.at,
            doses: doses.to_vec(),
            delivered: delivered(doses, &start, &end),
            units: end.units - start.units,
            latency_ns: end.latency.zip(start.latency).map(|(end, start)| end - start),
            quantiles: latencies.as_ref().and_then(LatencyCounts::quantiles),
            latencies: match (&latencies, self.measured.by.quantile()) {
                (Some(latencies), Some(_)) => latencies.buckets(),
                _ => Vec::new(),
            },
            idle_ns: end.idle.zip(start.idle).map(|(end, start)| end - start),
            failed: end.failed.zip(start.failed).map(|(end, start)| end - start),
            metrics: self.further(&before, &after),
            guarded,
            marks,
        };
        Ok(self.keep(slice))
    }

    /// Adds a slice to the record, and shows it to `watch`.
    pub(super) fn keep(&mut self, slice: Slice) -> Slice {
        self.measured.slices.push(slice.clone());
        let slowdown = self.slowdown(&slice);
        let waits_for_load = self.load.waits_until;
        (self.watch)(&self.measured, Now { phase: self.phase, ends: self.ends, slowdown, waits_for_load });
        slice
    }

    /// The further metrics between two readings, by name.
    pub(super) fn further(
        &self,
        before: &[(Nanos, Option<Reading>)],
        after: &[(Nanos, Option<Reading>)],
    ) -> BTreeMap<String, MetricReading> {
        let of = |(name, (before, after)): (&String, _)| Some((name.clone(), between(before, after)?));
        self.measured.metrics.iter().zip(before.iter().zip(after)).filter_map(of).collect()
    }

    /// Reads a sample for the edge of a slice. If units take long, waits until one is done, so that no part
    /// of a unit is lost. `at_once`: does not wait.
    fn edge(&mut self, at_once: bool) -> Result<Sample, Stop> {
        let mut sample = self.sample()?;
        if at_once || self.pace < LONG_UNIT {
            return Ok(sample);
        }
        let (before, piece) = (sample.units, Nanos((self.pace / EDGE_PIECES) as u64));
        let until = sample.at + Nanos((self.pace * EDGE_UNITS) as u64);
        while sample.units == before && sample.at < until {
            self.subject.wait_until(sample.at + piece)?;
            sample = self.sample()?;
        }
        Ok(sample)
    }

    /// Keeps the counts at the beginning of a slice, for the guard.
    fn note_edge(&mut self, sample: &Sample) {
        let is_old = |edge: &Edge| sample.at.0.saturating_sub(edge.at.0) >= GUARD_PERIOD.0;
        while self.edges.get(1).is_some_and(is_old) {
            self.edges.pop_front();
        }
        self.edges.push_back(Edge::new(sample));
    }

    /// Waits until this time. Returns `true`, and earlier, if units got too slow.
    fn watch_until(&mut self, time: Nanos) -> Result<bool, Stop> {
        // Slices without delays are treated alike: samples cost the service a little, and a slice that ends
        // at a slow moment looks slow.
        loop {
            let now = self.subject.now();
            if now >= time {
                return Ok(false);
            }
            self.subject.wait_until((now + GUARD_PERIOD).min(time))?;
            let sample = self.sample()?;
            // In less time, a few slow units would look like all of them.
            let is_due = |edge: &&Edge| sample.at.0.saturating_sub(edge.at.0) >= GUARD_PERIOD.0;
            let since = self.edges.iter().rev().find(is_due).copied();
            if self.is_guarded() && since.is_some_and(|since| self.is_too_slow(since, Edge::new(&sample))) {
                self.edges.clear();
                return Ok(true);
            }
        }
    }

    /// Sets what the guard compares with from the latest slices: a service gets slower and faster by itself,
    /// and a slow-down is relative to its latest pace.
    pub(super) fn update_pace(&mut self, slice: &Slice) {
        if !self.is_guarded() || slice.units < 1.0 {
            return;
        }
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(slice.time_per_unit(By::Throughput));
        self.pace = median(&mut self.latest.iter().copied().collect::<Vec<f64>>());
        if slice.doses.is_empty() {
            let latency = slice.latency_ns.map(|latency| latency / slice.units);
            self.latency = self.latency.and(latency).or(self.latency);
        }
    }

    /// Whether this is a phase with delays. Other phases have no delays to end, and before the test it is
    /// unknown what is slow.
    fn is_guarded(&self) -> bool {
        matches!(self.phase, PhaseKind::Test | PhaseKind::Ladder)
    }

    /// Whether units between two samples took longer than they may, by more than noise explains.
    fn is_too_slow(&self, since: Edge, now: Edge) -> bool {
        let ns = now.at.0.saturating_sub(since.at.0) as f64;
        let units = now.units - since.units;
        // Shorter stretches differ more, and may lack a part of a unit at each end.
        let noise = BELIEVED * self.noise * (self.times.slice.0 as f64 / ns.max(1.0)).sqrt();
        let most = 1.0 + self.measured.rules.max_slowdown;
        let usual = ns / self.pace;
        let latency = now.latency.zip(since.latency).map(|(now, since)| now - since);
        let is_late = latency.zip(self.latency).is_some_and(|(latency, usual)| {
            units >= MIN_LATENCIES && latency / units > usual * (most + noise)
        });
        is_late || units + 1.0 < usual / most - noise * usual
    }

    /// By what share units of a slice took longer than without delays.
    pub(super) fn slowdown(&self, slice: &Slice) -> Option<f64> {
        let more = |by: By, usual: f64| slice.time_per_unit(by) / usual - 1.0;
        let throughput = (self.pace > 0.0).then(|| more(By::Throughput, self.pace));
        let latency = self.latency.filter(|_| slice.latency_ns.is_some());
        let latency = latency.map(|usual| more(By::Latency, usual));
        throughput.into_iter().chain(latency).reduce(f64::max)
    }
}

/// A metric between two readings; `None` if it was set back, or could not be read.
fn between(
    (then, before): &(Nanos, Option<Reading>),
    (now, after): &(Nanos, Option<Reading>),
) -> Option<MetricReading> {
    let (before, after) = (before.as_ref()?, after.as_ref()?);
    let span = now.0.saturating_sub(then.0);
    if let (Some(after), Some(before)) = (after.level, before.level) {
        return (span > 0).then(|| MetricReading::Gauge { mean: (after - before) / span as f64 });
    }
    let quantiles = after.latencies.as_ref().zip(before.latencies.as_ref());
    (after.units >= before.units).then(|| MetricReading::Counter {
        span_ns: Nanos(span),
        units: after.units - before.units,
        latency_ns: after.latency.zip(before.latency).map(|(after, before)| after - before),
        quantiles: quantiles.and_then(|(after, before)| after.since(before).quantiles()),
    })
}

/// Calls and delays of the candidates with doses, between two samples.
pub(super) fn delivered(doses: &[(u32, Nanos)], start: &Sample, end: &Sample) -> Vec<Delivered> {
    let of = |(candidate, dose): &(u32, Nanos)| {
        let at = |sample: &Sample| sample.counts.get(*candidate as usize).copied().unwrap_or_default();
        let (before, after) = (at(start), at(end));
        let of_calls = |before: u64, after: u64| Nanos(dose.0.saturating_mul(after.saturating_sub(before)));
        let missed = of_calls(before.missed, after.missed);
        Delivered {
            candidate: *candidate,
            calls: after.calls.saturating_sub(before.calls),
            asked_ns: Nanos(after.asked.0.saturating_sub(before.asked.0).saturating_add(missed.0)),
            delivered_ns: Nanos(after.delivered.0.saturating_sub(before.delivered.0)),
            bounded_ns: of_calls(before.bounded, after.bounded),
        }
    };
    doses.iter().map(of).collect()
}
