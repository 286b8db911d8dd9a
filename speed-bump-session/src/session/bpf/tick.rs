//! Periodic checks, for changes that nobody announces.

use std::time::{Duration, Instant};

use speed_bump_abi::maps::Fault;

use super::{
    cover_late::look_for_late_files,
    coverage::Coverage,
    decisions,
    executed::{self, look_for_untold},
    following::FoundBy,
    phase::Covered,
    polling::poll_helpers,
};
use crate::units::Nanos;

/// How often to search for children and replaced images if the kernel does not announce them.
pub const LOOK_FOR_PROCESSES: Duration = Duration::from_millis(100);
/// How often we read the counters of faults.
const LOOK_FOR_FAULTS: Duration = Duration::from_secs(1);

/// The time of the last check of each kind, and the losses that were reported so far.
#[derive(Debug)]
pub(super) struct Checks {
    /// Whether the kernel announces forks and execs.
    pub(super) are_announced: bool,
    processes: Instant,
    faults: Instant,
    /// The number of lost events.
    lost: u64,
    /// The number of lost decisions of the BPF programs.
    missed: u64,
}

impl Checks {
    /// The first checks are due an interval from now.
    pub(super) fn new(are_announced: bool) -> Self {
        let now = Instant::now();
        Self { are_announced, processes: now, faults: now, lost: 0, missed: 0 }
    }

    /// Handles what has changed since the last call. This takes little time if nothing has changed.
    pub(super) fn tick(&mut self, coverage: &mut Coverage) {
        let Coverage { context, processes, engines } = coverage;
        if let Some(probes) = &mut engines.probes {
            probes.poll_perf_maps(processes, context);
        }
        look_for_untold(coverage);
        poll_helpers(coverage);
        look_for_late_files(coverage);
        if let Some(probes) = &mut coverage.engines.probes {
            decisions::tell(&mut probes.engine, &coverage.context.state);
        }
        if !self.are_announced && self.processes.elapsed() >= LOOK_FOR_PROCESSES {
            self.processes = Instant::now();
            look_for_processes(coverage);
        }
        let lapsed = coverage.engines.window.take_lapsed();
        if lapsed > Nanos(0) {
            // The warning for the user gives no duration: the same text is reported only once.
            tracing::warn!("delays were not renewed for {lapsed}");
            coverage.context.warn(
                "the tool itself was held up for seconds, and delayed no calls meanwhile: they are in \
                 `calls` and not in `delayed`"
                    .to_owned(),
            );
        }
        if self.faults.elapsed() >= LOOK_FOR_FAULTS {
            self.faults = Instant::now();
            self.look_for_faults(coverage);
            self.tell_missed_decisions(coverage);
        }
    }

    /// At the end of the session, handles everything that has happened so far.
    pub(super) fn catch_up(&mut self, coverage: &mut Coverage) {
        if let Some(probes) = &mut coverage.engines.probes {
            decisions::tell(&mut probes.engine, &coverage.context.state);
        }
        self.tell_missed_decisions(coverage);
        look_at_untimed(coverage);
    }

    /// Warns of faults that the BPF programs counted. If events were lost, finds what they would have
    /// announced.
    fn look_for_faults(&mut self, coverage: &mut Coverage) {
        let Coverage { context, processes, engines } = coverage;
        let Some(probes) = &mut engines.probes else { return };
        let Ok(faults) = probes.engine.faults() else { return };
        let count = |fault: Fault| faults.get(fault as usize).copied().unwrap_or(0);
        let lost = count(Fault::EventLost);
        if lost > self.lost {
            self.lost = lost;
            probes.find_lost_locations(processes, context);
            look_for_processes(coverage);
        }
        look_at_untimed(coverage);
        if count(Fault::Unreadable) > 0 {
            coverage.context.warn(
                "some Python calls were not counted: their file or name was not in memory when they began"
                    .to_owned(),
            );
        }
        if count(Fault::NoRoom) > 0 {
            coverage.context.warn(
                "some Python functions or child processes are not covered: there are more than this session \
                 has room for; narrow the targets"
                    .to_owned(),
            );
        }
    }

    fn tell_missed_decisions(&mut self, coverage: &mut Coverage) {
        if let Some(probes) = &mut coverage.engines.probes {
            decisions::tell_missed(&mut probes.engine, &mut self.missed);
        }
    }
}

/// Reads for how many native calls the time could not be measured, if the session times native calls.
fn look_at_untimed(Coverage { context, engines, .. }: &mut Coverage) {
    if let (Some(probes), true) = (&engines.probes, context.resolver.times_calls()) {
        probes.look_at_untimed(&mut context.state);
    }
}

/// Finds replaced images and children, which the kernel may not have announced.
fn look_for_processes(coverage: &mut Coverage) {
    let is_replaced =
        |covered: &Covered| covered.image.as_ref().is_some_and(|image| covered.process.has_replaced(image));
    let replaced = coverage.processes.iter().filter(|(_, covered)| is_replaced(covered));
    for pid in replaced.map(|(pid, _)| pid).collect::<Vec<_>>() {
        executed::announced(pid, coverage);
    }
    if coverage.context.settings.children {
        look_for_children(coverage);
    }
}

/// Finds children through /proc. A child that we find here has had time to execute a program, so we plan its
/// probe sites anew.
pub(super) fn look_for_children(coverage: &mut Coverage) {
    let roots = coverage.context.state.roots.clone();
    for root in roots {
        let Some(covered) = coverage.processes.get(root) else { continue };
        let descendants = match covered.process.descendants() {
            Ok(descendants) => descendants.processes,
            Err(error) => {
                tracing::debug!("children of process {root} are not found: {error}");
                continue;
            }
        };
        for child in descendants {
            if !coverage.processes.has(child.pid()) {
                coverage.cover_found(child, FoundBy::Look);
            }
        }
    }
}
