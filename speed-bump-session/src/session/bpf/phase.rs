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

/// The state with one process.
#[derive(Debug)]
pub(super) enum Phase {
    /// Probes are in it.
    Covered(Covered),
    /// It executed a program: the catcher of execs is to report that. What was covered before is void, and
    /// kept until then.
    Executed {
        /// When the kernel announced it.
        since: Instant,
        before: Option<Covered>,
    },
    /// Its program is held at its entry point until the helper is loaded, and is covered then.
    Entering(Entering),
}

/// The state of the helper in a covered process.
#[derive(Debug, Default)]
pub(super) enum HelperPhase {
    /// No helper is loaded, and none is to be.
    #[default]
    Absent,
    /// It is loaded as soon as the interpreter allows it.
    Joining(LateJoin),
    /// It is loaded. It may be shared with processes that this one was forked from, or forked.
    In(HelperId),
}

impl HelperPhase {
    /// The helper that is loaded.
    pub(super) fn id(&self) -> Option<HelperId> {
        match self {
            Self::In(id) => Some(*id),
            Self::Absent | Self::Joining(_) => None,
        }
    }
}

/// A process with probes in it.
#[derive(Debug)]
pub(super) struct Covered {
    /// The process; its pidfd tells when it ends.
    pub(super) process: Process,
    /// Its index in the session, part of every cookie.
    pub(super) index: u32,
    /// The memory of the image that was planned for; gone when another replaced it. Absent where it may not
    /// be read.
    pub(super) image: Option<Memory>,
    /// What is attached where, so that it can be attached to its children too.
    pub(super) groups: Vec<TargetSites>,
    /// Where the callers lie in its memory that native targets name, if any target needs to know.
    pub(super) callers: Option<CallerCode>,
    /// The links; dropping them detaches.
    pub(super) attachments: Vec<Attached>,
    /// The sites that the kernel refused.
    pub(super) refused: HashSet<u32>,
    /// The files that it maps later.
    pub(super) late_files: LateFiles,
    /// How its Python functions become known.
    pub(super) python: Option<PythonFollower>,
    /// The state of its helper.
    pub(super) helper: HelperPhase,
}

impl Covered {
    /// Whether another image has replaced the one that was planned for.
    pub(super) fn is_replaced(&self) -> bool {
        self.image.as_ref().is_some_and(Memory::is_gone)
    }
}

/// A helper that is being loaded into a covered process.
#[derive(Debug)]
pub(super) struct LateJoin {
    pub(super) since: Instant,
    pub(super) next: Instant,
    pub(super) way: Option<(Joining, FunctionRange)>,
}

/// A program that is held at its entry point until the helper is loaded. Dropping this lets it go on.
#[derive(Debug)]
pub(super) struct Entering {
    pub(super) process: Process,
    pub(super) plan: Plan,
    pub(super) range: FunctionRange,
    pub(super) way: EnteringWay,
}

#[derive(Debug)]
pub(super) enum EnteringWay {
    /// An earlier attempt on the same process has to end first.
    Waits(StoppedProgram, Room),
    /// The helper is being loaded.
    Comes(Coming),
}

/// The helpers are numbered in the order in which they were loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HelperId(pub(super) u32);

/// All processes that are followed.
#[derive(Debug, Default)]
pub(super) struct Processes {
    phases: BTreeMap<Pid, Phase>,
    /// The command that the tool started, if the session has one.
    pub(super) command: Option<StartedCommand>,
    /// Whether the children of the command are caught and reported at their execs.
    pub(super) are_caught: bool,
    /// Whether the last of the named processes to end executed another program.
    pub(super) root_was_replaced: bool,
    /// How many times a process was covered: the next index.
    coverings: u32,
}

impl Processes {
    /// What is in a process, or was until its exec.
    pub(super) fn get(&self, pid: Pid) -> Option<&Covered> {
        self.phases.get(&pid).and_then(covered)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, pid: Pid) -> Option<&mut Covered> {
        self.phases.get_mut(&pid).and_then(covered_mut)
    }

    /// All that have probes in them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Pid, &Covered)> {
        self.phases.iter().filter_map(|(pid, phase)| Some((*pid, covered(phase)?)))
    }

    /// All processes whose identity is known: including those at their entry point.
    pub(super) fn all(&self) -> Vec<&Process> {
        let processes = self.phases.values().filter_map(|phase| match phase {
            Phase::Covered(covered) | Phase::Executed { before: Some(covered), .. } => Some(&covered.process),
            Phase::Executed { before: None, .. } => None,
            Phase::Entering(entering) => Some(&entering.process),
        });
        processes.collect()
    }

    /// The same, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Pid, &mut Covered)> {
        self.phases.iter_mut().filter_map(|(pid, phase)| Some((*pid, covered_mut(phase)?)))
    }

    /// The process numbers, from this one on.
    pub(super) fn pids_from(&self, first: Pid) -> Vec<Pid> {
        let all = self.phases.range(first..).chain(self.phases.range(..first));
        all.filter(|(_, phase)| covered(phase).is_some()).map(|(pid, _)| *pid).collect()
    }

    /// Whether a process is covered or about to be.
    pub(super) fn has(&self, pid: Pid) -> bool {
        self.phases
            .get(&pid)
            .is_some_and(|phase| matches!(phase, Phase::Entering(_)) || covered(phase).is_some())
    }

    /// The index of the process that is covered next.
    pub(super) fn next_index(&self) -> u32 {
        self.coverings.saturating_add(1)
    }

    /// Records that a process is covered, with the next index if it is new.
    pub(super) fn insert(&mut self, pid: Pid, covered: Covered) {
        self.coverings = self.coverings.max(covered.index);
        self.phases.insert(pid, Phase::Covered(covered));
    }

    /// Forgets a process, unless its program is held at its entry point. Returns what was covered of it.
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

    /// Forgets all that have probes in them.
    pub(super) fn take(&mut self) -> Vec<Covered> {
        let pids: Vec<Pid> = self.phases.keys().copied().collect();
        pids.into_iter().filter_map(|pid| self.remove(pid)).collect()
    }

    /// How the Python calls of the covered processes become visible, as far as there are any.
    pub(super) fn entry_source(&self) -> Option<EntrySource> {
        self.iter().find_map(|(_, covered)| covered.python.as_ref()).map(PythonFollower::source)
    }

    /// Whether a helper is in a process or on its way.
    pub(super) fn has_helper(&self, pid: Pid) -> bool {
        self.get(pid).is_some_and(|covered| !matches!(covered.helper, HelperPhase::Absent))
    }

    /// Loads the helper into a process as soon as its interpreter allows it. The command's tracer must let it
    /// go.
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

    /// The kernel announced an exec that the catcher has not reported yet.
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

    /// The catcher reported an announced exec.
    pub(super) fn exec_is_told(&mut self, pid: Pid) {
        if let Some(Phase::Executed { .. }) = self.phases.get(&pid)
            && let Some(before) = self.remove(pid)
        {
            self.insert(pid, before);
        }
    }

    /// Execs that were announced before this time and not reported.
    pub(super) fn untold(&self, before: Instant) -> Vec<Pid> {
        let is_late = |phase: &Phase| matches!(phase, Phase::Executed { since, .. } if *since <= before);
        self.phases.iter().filter(|(_, phase)| is_late(phase)).map(|(pid, _)| *pid).collect()
    }

    /// A program is held at its entry point.
    pub(super) fn enter(&mut self, pid: Pid, entering: Entering) {
        self.phases.insert(pid, Phase::Entering(entering));
    }

    /// Whether a program is held at its entry point until the helper is loaded.
    pub(super) fn is_entering(&self, pid: Pid) -> bool {
        matches!(self.phases.get(&pid), Some(Phase::Entering(_)))
    }

    /// All programs that are held.
    pub(super) fn entering(&self) -> Vec<Pid> {
        let is_entering = |phase: &Phase| matches!(phase, Phase::Entering(_));
        self.phases.iter().filter(|(_, phase)| is_entering(phase)).map(|(pid, _)| *pid).collect()
    }

    /// Takes out such a program.
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
        // After the second announcement it waits no longer.
        processes.announce_exec(pid);
        assert_eq!(processes.untold(now), [pid]);
        processes.exec_is_told(pid);
        assert!(processes.untold(Instant::now()).is_empty());
    }
}
