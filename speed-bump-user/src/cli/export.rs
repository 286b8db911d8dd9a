//! `--prometheus` and `--prometheus-file`.

use std::time::Duration;

use super::{
    args::ExportArgs,
    exit::{Failure, SYSTEM},
    outputs::output_at,
    terminal::tell,
};
use crate::{
    experiment::{
        record::{Measured, PhaseKind},
        run::Now,
    },
    exporter::{Delivered, Exporter, ExporterError, Numbers, SweepNumbers},
    report::words::candidate_name,
    stats::report::SessionReport,
    sys::clock::now,
    units::Nanos,
};

/// The exporter, if a flag asks for one. A failed write gives one warning and ends the file.
#[derive(Debug)]
pub(super) struct Export(Option<Exporter>);

impl Export {
    /// Starts the exporter and prints its address.
    pub(super) fn start(flags: &ExportArgs, quiet: bool, first: &Numbers) -> Result<Self, Failure> {
        if flags.prometheus.is_none() && flags.prometheus_file.is_none() {
            return Ok(Self(None));
        }
        let file = flags.prometheus_file.as_deref().map(output_at).transpose()?;
        let exporter = Exporter::start(flags.prometheus, file, first);
        let exporter = exporter.map_err(|error| Failure::new(SYSTEM, error))?;
        if let Some(address) = exporter.address().filter(|_| !quiet) {
            tell(format_args!("speed-bump-ebpf: numbers are at http://{address}/metrics"));
        }
        Ok(Self(Some(exporter)))
    }

    /// Whether there is an exporter.
    pub(super) fn ticks(&self) -> bool {
        self.0.is_some()
    }

    /// Updates the numbers, if it is time to.
    pub(super) fn tick(&mut self, numbers: impl FnOnce() -> Numbers) {
        let ticked = self.0.as_mut().map_or(Ok(()), |exporter| exporter.tick(numbers));
        self.tell(ticked);
    }

    /// Updates the numbers at once: before the session, or after it.
    pub(super) fn put(&mut self, numbers: &Numbers) {
        let put = self.0.as_mut().map_or(Ok(()), |exporter| exporter.put_now(numbers));
        self.tell(put);
    }

    fn tell(&mut self, done: Result<(), ExporterError>) {
        if let Err(error) = done {
            tell(format_args!("speed-bump-ebpf: warning: {error}; --prometheus-file ends here"));
            if let Some(exporter) = &mut self.0 {
                exporter.without_file();
            }
        }
    }
}

/// The numbers of a sweep, updated with each slice.
#[derive(Debug)]
pub(super) struct SweepProgress {
    guards: usize,
    /// Slices that are included so far.
    seen: usize,
    dropped: u64,
    /// Calls and delay by candidate.
    delivered: Vec<(u64, Nanos)>,
}

impl SweepProgress {
    pub(super) fn new(guards: usize) -> Self {
        Self { guards, seen: 0, dropped: 0, delivered: Vec::new() }
    }

    /// The numbers before the first slice, while the census counts calls.
    pub(super) fn before(&self) -> Numbers {
        let sweep =
            SweepNumbers { phase: Some(PhaseKind::Census), guards: self.guards, ..SweepNumbers::default() };
        Numbers { session: None, sweep: Some(sweep) }
    }

    /// The numbers after a slice.
    pub(super) fn numbers(
        &mut self,
        measured: &Measured,
        at: Now,
        session: Option<SessionReport>,
    ) -> Numbers {
        let left = Duration::from_nanos(at.ends.0.saturating_sub(now().0));
        let sweep = SweepNumbers {
            phase: Some(at.phase),
            left: Some(left),
            slowdown: at.slowdown,
            ..self.so_far(measured)
        };
        Numbers { session, sweep: Some(sweep) }
    }

    /// The numbers after the last slice.
    pub(super) fn over(&mut self, measured: &Measured) -> Numbers {
        let sweep = SweepNumbers { guard_broken: measured.guard.is_some(), ..self.so_far(measured) };
        Numbers { session: None, sweep: Some(sweep) }
    }

    fn so_far(&mut self, measured: &Measured) -> SweepNumbers {
        self.delivered.resize(measured.candidates.len(), (0, Nanos(0)));
        for slice in measured.slices.iter().skip(self.seen) {
            self.dropped += u64::from(!slice.counts());
            for of in &slice.delivered {
                if let Some((calls, delay)) = self.delivered.get_mut(of.candidate as usize) {
                    *calls = calls.saturating_add(of.calls);
                    *delay = Nanos(delay.0.saturating_add(of.delivered_ns.0));
                }
            }
        }
        self.seen = measured.slices.len();
        let delivered = measured.candidates.iter().zip(&self.delivered).filter(|(_, (calls, _))| *calls > 0);
        SweepNumbers {
            slices: (self.seen as u64).saturating_sub(self.dropped),
            dropped: self.dropped,
            guards: self.guards,
            delivered: delivered
                .map(|(candidate, (calls, delay))| Delivered {
                    function: candidate_name(candidate),
                    file: candidate.file.display().to_string(),
                    line: candidate.line.map(|line| line.to_string()).unwrap_or_default(),
                    calls: *calls,
                    delay: *delay,
                })
                .collect(),
            ..SweepNumbers::default()
        }
    }
}
