//! A slice that is a run of a benchmark.

use super::{
    Runner, Stop,
    slices::{GUARD_PERIOD, delivered},
};
use crate::{
    record::{Census, PhaseKind, Slice, Treatment},
    units::Nanos,
};

/// A run that takes more than this many times as long as the longest one may never end.
const HANGS: u64 = 2;
/// How often to poll for the end of a run.
const POLL: Nanos = Nanos(10_000_000);

impl Runner<'_> {
    /// Runs the benchmark with these doses. Lets it go on if it gets slower than a service may: half a run
    /// says nothing, and no client waits for it.
    pub(super) fn run_of_benchmark(
        &mut self,
        block: u32,
        treatment: Treatment,
        doses: &[(u32, Nanos)],
    ) -> Result<Slice, Stop> {
        self.subject.set(doses)?;
        let (start, before) = (self.sample()?, self.read_further()?);
        self.subject.begin_run()?;
        let mut checked = start.at;
        let run = loop {
            let now = self.subject.now();
            self.subject.wait_until(now + POLL)?;
            if let Some(run) = self.subject.finished_run()? {
                break run;
            }
            self.check_run(start.at, now)?;
            if now.0.saturating_sub(checked.0) >= GUARD_PERIOD.0 {
                checked = now;
                self.sample()?;
            }
        };
        let (end, after) = (self.sample()?, self.read_further()?);
        let slice = Slice {
            phase: self.phase,
            block,
            treatment,
            start_ns: run.start,
            end_ns: run.end,
            doses: doses.to_vec(),
            delivered: delivered(doses, &start, &end),
            units: run.units,
            latency_ns: run.latency,
            quantiles: None,
            latencies: Vec::new(),
            idle_ns: None,
            failed: None,
            metrics: self.further(&before, &after),
            guarded: false,
            marks: Vec::new(),
        };
        let slice = self.keep(slice);
        self.update_pace(&slice);
        Ok(slice)
    }

    /// Ends a run that hangs, when all of the time is up.
    fn check_run(&self, start: Nanos, now: Nanos) -> Result<(), Stop> {
        let took = now.0.saturating_sub(start.0);
        let Census { start_ns, end_ns, .. } = self.measured.census;
        let slices = self.measured.slices.iter().map(|slice| (slice.start_ns, slice.end_ns));
        let spans = slices.chain([(start_ns, end_ns)]).map(|(start, end)| end.0.saturating_sub(start.0));
        let longest = spans.max().unwrap_or_default();
        if !self.is_out_of_time() || took <= longest.saturating_mul(HANGS) {
            return Ok(());
        }
        Err(Stop::Metric(format!(
            "{} had run for {} when the time was up, and for {} at most before: it was ended",
            self.measured.unit.source,
            Nanos(took / 1_000_000 * 1_000_000),
            Nanos(longest / 1_000_000 * 1_000_000)
        )))
    }

    /// The mean time of a run without delays, in ns.
    pub(super) fn pace_of_runs(&self) -> f64 {
        let spans: Vec<f64> = self.measured.of_phase(PhaseKind::Census).map(Slice::span).collect();
        spans.iter().sum::<f64>() / spans.len().max(1) as f64
    }
}
