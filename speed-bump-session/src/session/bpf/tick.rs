//! What has to be looked at again and again, because nothing announces it.

use std::time::{Duration, Instant};

use speed_bump_abi::maps::Fault;

use super::{BpfSession, processes::FoundBy};
use crate::units::Nanos;

/// How often children and replaced images are looked for where the kernel does not announce them.
pub const LOOK_FOR_PROCESSES: Duration = Duration::from_millis(100);
/// How often the fault counters are read.
const LOOK_FOR_FAULTS: Duration = Duration::from_secs(1);

/// When what was last looked at.
#[derive(Debug)]
pub(crate) struct Looked {
    processes: Instant,
    faults: Instant,
    lost: u64,
    /// Decisions of the BPF programs that were left out.
    pub(super) missed: u64,
}

impl Looked {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { processes: now, faults: now, lost: 0, missed: 0 }
    }
}

impl BpfSession {
    /// Takes up what changed since the last call; cheap when nothing did.
    pub(crate) fn tick(&mut self) {
        self.poll_python();
        self.look_for_untold();
        self.poll_helpers();
        self.look_for_late_files();
        self.tell_decisions();
        if !self.follows && self.looked.processes.elapsed() >= LOOK_FOR_PROCESSES {
            self.looked.processes = Instant::now();
            self.look_for_processes();
        }
        let lapsed = self.window.take_lapsed();
        if lapsed > Nanos(0) {
            // With its length it would be another warning each time.
            tracing::warn!("delays were not renewed for {lapsed}");
            self.context.warn(
                "the tool itself was held up for seconds, and delayed no calls meanwhile: they are in \
                 `calls` and not in `delayed`"
                    .to_owned(),
            );
        }
        if self.looked.faults.elapsed() >= LOOK_FOR_FAULTS {
            self.looked.faults = Instant::now();
            self.look_for_faults();
            self.tell_missed_decisions();
        }
    }

    /// Finds out what else would be announced: images that were replaced, and children.
    fn look_for_processes(&mut self) {
        for pid in self.replaced() {
            self.executed(pid);
        }
        if self.context.settings.children {
            self.look_for_children();
        }
    }

    /// Finds children through /proc. A child that shows here has had time to exec, so it is planned afresh.
    pub(crate) fn look_for_children(&mut self) {
        let roots = self.context.state.roots.clone();
        for root in roots {
            let Some(covered) = self.processes.get(root) else { continue };
            let descendants = match covered.process.descendants() {
                Ok(descendants) => descendants.processes,
                Err(error) => {
                    tracing::debug!("children of process {root} are not found: {error}");
                    continue;
                }
            };
            for child in descendants {
                if !self.processes.has(child.pid()) {
                    self.cover_found(child, FoundBy::Look);
                }
            }
        }
    }

    /// Tells of faults that the BPF programs counted, and makes up for those that can be.
    pub(crate) fn look_for_faults(&mut self) {
        let Ok(faults) = self.engine.faults() else { return };
        let count = |fault: Fault| faults.get(fault as usize).copied().unwrap_or(0);
        let lost = count(Fault::EventLost);
        if lost > self.looked.lost {
            self.looked.lost = lost;
            self.find_lost_locations();
            self.look_for_processes();
        }
        self.look_at_untimed();
        if count(Fault::Unreadable) > 0 {
            self.context.warn(
                "some Python calls were not counted: their file or name was not in memory when they began"
                    .to_owned(),
            );
        }
        if count(Fault::NoRoom) > 0 {
            self.context.warn(
                "some Python functions or child processes are not covered: there are more than this session \
                 has room for; narrow the targets"
                    .to_owned(),
            );
        }
    }
}
