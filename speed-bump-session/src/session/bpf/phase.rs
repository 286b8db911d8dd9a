//! The state of the session with each process that it follows.

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use super::{
    command::StartedCommand,
    follower::PythonFollower,
    late_files::LateFiles,
    links::{Attached, TargetSites},
};
use crate::{
    launch::{Coming, StoppedProgram},
    presence::Joining,
    probe::plan::{CallerCode, Plan},
    process::{Memory, Process},
    python::{entry_source::EntrySource, helper::Room},
    session::functions::FunctionRange,
    units::Pid,
};

/// The state of one process.
#[derive(Debug)]
pub(super) enum Phase {
    /// The session covers the process: probes are attached.
    Covered(Covered),
    /// The process executed a program, and the catcher of execs will report it. The probes in the former
    /// image have no effect any more. We keep them until then.
    Executed {
        /// When the kernel announced the exec.
        since: Instant,
        before: Option<Covered>,
    },
    /// We hold the process's program at its entry point until the helper is loaded. Then we cover the
    /// program.
    Entering(Entering),
}

/// The state of the helper in a covered process.
#[derive(Debug, Default)]
pub(super) enum HelperPhase {
    /// No helper is loaded, and we will load none.
    #[default]
    Absent,
    /// We load the helper as soon as the interpreter allows it.
    Joining(LateJoin),
    /// The helper is loaded. Other processes may share it: the processes from which this one was forked, and
    /// those that this one forked.
    In(HelperId),
}

impl HelperPhase {
    /// The helper that is loaded, if any.
    pub(super) fn id(&self) -> Option<HelperId> {
        match self {
            Self::In(id) => Some(*id),
            Self::Absent | Self::Joining(_) => None,
        }
    }
}

/// A covered process.
#[derive(Debug)]
pub(super) struct Covered {
    /// The process. The pidfd of the process shows when the process ends.
    pub(super) process: Process,
    /// The index of the process in the session. Every cookie contains this index.
    pub(super) index: u32,
    /// The memory of the image for which we made the plan. This memory is gone when another image has
    /// replaced that image. `None` if we may not read the memory.
    pub(super) image: Option<Memory>,
    /// The attached sites. We also attach them in the process's children.
    pub(super) groups: Vec<TargetSites>,
    /// The code of the callers that native targets name, in the process's memory; `None` if no target needs
    /// it.
    pub(super) callers: Option<CallerCode>,
    /// The links. Dropping them detaches.
    pub(super) attachments: Vec<Attached>,
    /// The sites that the kernel refused.
    pub(super) refused: HashSet<u32>,
    /// Finds files that the process maps later.
    pub(super) late_files: LateFiles,
    /// How the process's Python functions become known.
    pub(super) python: Option<PythonFollower>,
    /// The state of the process's helper.
    pub(super) helper: HelperPhase,
}

impl Covered {
    /// Whether the process has replaced the image for which we made the plan.
    pub(super) fn is_replaced(&self) -> bool {
        self.image.as_ref().is_some_and(Memory::is_gone)
    }
}

/// A helper that we are loading into a covered process.
#[derive(Debug)]
pub(super) struct LateJoin {
    pub(super) since: Instant,
    pub(super) next: Instant,
    pub(super) way: Option<(Joining, FunctionRange)>,
}

/// A program that we hold at its entry point until the helper is loaded. If this value is dropped, the
/// program goes on.
#[derive(Debug)]
pub(super) struct Entering {
    pub(super) process: Process,
    pub(super) plan: Plan,
    pub(super) range: FunctionRange,
    pub(super) way: EnteringWay,
}

#[derive(Debug)]
pub(super) enum EnteringWay {
    /// An earlier attempt to load the helper into the process must end first.
    Waits(StoppedProgram, Room),
    /// We are loading the helper.
    Comes(Coming),
}

/// Identifies a helper. Helpers have numbers in the order of their loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HelperId(pub(super) u32);

/// All processes that the session follows.
#[derive(Debug, Default)]
pub(super) struct Processes {
    phases: BTreeMap<Pid, Phase>,
    /// The command that the tool started, if any.
    pub(super) command: Option<StartedCommand>,
    /// Whether we catch children of the command when they execute programs.
    pub(super) are_caught: bool,
    /// Whether the last named process to end had executed another program.
    pub(super) root_was_replaced: bool,
    /// How many processes the session has covered so far: the next index.
    coverings: u32,
}

impl Processes {
    /// What is attached to a process. After an exec, this is what was attached before.
    pub(super) fn get(&self, pid: Pid) -> Option<&Covered> {
        self.phases.get(&pid).and_then(covered)
    }

    /// Like [`get`](Self::get), but the caller may change the result.
    pub(super) fn get_mut(&mut self, pid: Pid) -> Option<&mut Covered> {
        self.phases.get_mut(&pid).and_then(covered_mut)
    }

    /// All processes to which something is attached.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Pid, &Covered)> {
        self.phases.iter().filter_map(|(pid, phase)| Some((*pid, covered(phase)?)))
    }

    /// All known processes, including those whose programs we hold at their entry points.
    pub(super) fn all(&self) -> Vec<&Process> {
        let processes = self.phases.values().filter_map(|phase| match phase {
            Phase::Covered(covered) | Phase::Executed { before: Some(covered), .. } => Some(&covered.process),
            Phase::Executed { before: None, .. } => None,
            Phase::Entering(entering) => Some(&entering.process),
        });
        processes.collect()
    }

    /// Like [`iter`](Self::iter), but the caller may change the items.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Pid, &mut Covered)> {
        self.phases.iter_mut().filter_map(|(pid, phase)| Some((*pid, covered_mut(phase)?)))
    }

    /// The PIDs of the covered processes, beginning with `first`. Lower PIDs come at the end.
    pub(super) fn pids_from(&self, first: Pid) -> Vec<Pid> {
        let all = self.phases.range(first..).chain(self.phases.range(..first));
        all.filter(|(_, phase)| covered(phase).is_some()).map(|(pid, _)| *pid).collect()
    }

    /// Whether the session covers a process, or is about to.
    pub(super) fn has(&self, pid: Pid) -> bool {
        self.phases
            .get(&pid)
            .is_some_and(|phase| matches!(phase, Phase::Entering(_)) || covered(phase).is_some())
    }

    /// The index of the process that the session covers next.
    pub(super) fn next_index(&self) -> u32 {
        self.coverings.saturating_add(1)
    }

    /// Adds a covered process. If the process is new, it uses up the next index.
    pub(super) fn insert(&mut self, pid: Pid, covered: Covered) {
        self.coverings = self.coverings.max(covered.index);
        self.phases.insert(pid, Phase::Covered(covered));
    }

    /// Forgets a process, unless we hold its program at its entry point. Returns what was attached.
    pub(super) fn remove(&mut self, pid: Pid) -> Option<Covered> {
        match self.phases.remove(&pid)? {
            Phase::Covered(covered) => Some(covered),
            Phase::Executed { before, .. } => before,
            entering @ Phase::Entering(_) => {
                self.phases.insert(pid, entering);
                None
            }
        }
    }

    /// Forgets all processes to which something is attached.
    pub(super) fn take(&mut self) -> Vec<Covered> {
        let pids: Vec<Pid> = self.phases.keys().copied().collect();
        pids.into_iter().filter_map(|pid| self.remove(pid)).collect()
    }

    /// The entry source of the covered processes, if any of them has one without the helper.
    pub(super) fn entry_source(&self) -> Option<EntrySource> {
        self.iter().find_map(|(_, covered)| covered.python.as_ref()).map(PythonFollower::source)
    }

    /// Whether the helper is in a process, or we are loading it.
    pub(super) fn has_helper(&self, pid: Pid) -> bool {
        self.get(pid).is_some_and(|covered| !matches!(covered.helper, HelperPhase::Absent))
    }

    /// Loads the helper into a process as soon as its interpreter allows it. If the process is the command,
    /// its tracer must detach.
    pub(super) fn join_later(&mut self, pid: Pid) {
        if let Some(command) = self.command.as_ref().filter(|command| command.pid() == pid) {
            command.stop_following();
        }
        let now = Instant::now();
        if let Some(covered) = self.get_mut(pid)
            && matches!(covered.helper, HelperPhase::Absent)
        {
            covered.helper = HelperPhase::Joining(LateJoin { since: now, next: now, way: None });
        }
    }

    /// Records that the kernel announced an exec. The catcher has not reported it yet.
    pub(super) fn announce_exec(&mut self, pid: Pid) {
        match self.phases.remove(&pid) {
            Some(phase @ (Phase::Executed { .. } | Phase::Entering(_))) => {
                self.phases.insert(pid, phase);
            }
            before => {
                let before = match before {
                    Some(Phase::Covered(covered)) => Some(covered),
                    _ => None,
                };
                self.phases.insert(pid, Phase::Executed { since: Instant::now(), before });
            }
        }
    }

    /// Records that the catcher reported an announced exec.
    pub(super) fn exec_is_told(&mut self, pid: Pid) {
        if let Some(Phase::Executed { .. }) = self.phases.get(&pid)
            && let Some(before) = self.remove(pid)
        {
            self.insert(pid, before);
        }
    }

    /// The processes whose exec the kernel announced before this time, and the catcher has not reported.
    pub(super) fn untold(&self, before: Instant) -> Vec<Pid> {
        let is_late = |phase: &Phase| matches!(phase, Phase::Executed { since, .. } if *since <= before);
        self.phases.iter().filter(|(_, phase)| is_late(phase)).map(|(pid, _)| *pid).collect()
    }

    /// Adds a program that we hold at its entry point.
    pub(super) fn enter(&mut self, pid: Pid, entering: Entering) {
        self.phases.insert(pid, Phase::Entering(entering));
    }

    /// Whether we hold a program at its entry point until the helper is loaded.
    pub(super) fn is_entering(&self, pid: Pid) -> bool {
        matches!(self.phases.get(&pid), Some(Phase::Entering(_)))
    }

    /// All programs that we hold at their entry points.
    pub(super) fn entering(&self) -> Vec<Pid> {
        let is_entering = |phase: &Phase| matches!(phase, Phase::Entering(_));
        self.phases.iter().filter(|(_, phase)| is_entering(phase)).map(|(pid, _)| *pid).collect()
    }

    /// Removes a program that we hold at its entry point.
    pub(super) fn take_entering(&mut self, pid: Pid) -> Option<Entering> {
        match self.phases.remove(&pid)? {
            Phase::Entering(entering) => Some(entering),
            phase => {
                self.phases.insert(pid, phase);
                None
            }
        }
    }
}

fn covered(phase: &Phase) -> Option<&Covered> {
    match phase {
        Phase::Covered(covered) => Some(covered),
        Phase::Executed { before, .. } => before.as_ref(),
        Phase::Entering(_) => None,
    }
}

fn covered_mut(phase: &mut Phase) -> Option<&mut Covered> {
    match phase {
        Phase::Covered(covered) => Some(covered),
        Phase::Executed { before, .. } => before.as_mut(),
        Phase::Entering(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_exec_that_nobody_tells_of_is_looked_for() {
        let (mut processes, pid) = (Processes::default(), Pid::own());
        processes.announce_exec(pid);
        assert!(!processes.has(pid) && processes.get(pid).is_none());
        let now = Instant::now();
        assert_eq!(processes.untold(now), [pid]);
        let earlier = now.checked_sub(Duration::from_secs(1));
        assert!(earlier.is_none_or(|earlier| processes.untold(earlier).is_empty()));
        // The second announcement does not extend the wait.
        processes.announce_exec(pid);
        assert_eq!(processes.untold(now), [pid]);
        processes.exec_is_told(pid);
        assert!(processes.untold(Instant::now()).is_empty());
    }
}
