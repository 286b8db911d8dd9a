//! Where the session is with each process that it follows.

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
    probe::plan::Plan,
    process::{Memory, Process},
    python::{entry_source::EntrySource, helper::Room},
    session::functions::FunctionRange,
    units::Pid,
};

/// Where it is with one process.
#[derive(Debug)]
pub(super) enum Phase {
    /// Probes are in it.
    Covered(Covered),
    /// It executed a program: whoever catches execs is to tell of that. What was covered before is void, and
    /// kept until then.
    Executed {
        /// When the kernel announced it.
        since: Instant,
        before: Option<Covered>,
    },
    /// Its program stands at its entry point until the helper is in, and is covered then.
    Entering(Entering),
}

/// Where the helper is, for a process that is covered.
#[derive(Debug, Default)]
pub(super) enum HelperPhase {
    /// None is in, and none is to come.
    #[default]
    Absent,
    /// It is brought in as soon as the interpreter allows.
    Joining(LateJoin),
    /// It is in. It may share it with processes that it was forked from or forked.
    In(HelperId),
}

impl HelperPhase {
    /// The helper that is in.
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
    /// What is attached where, to be attached to its children too.
    pub(super) groups: Vec<TargetSites>,
    /// The links; dropping them detaches.
    pub(super) attachments: Vec<Attached>,
    /// The sites that the kernel would not take.
    pub(super) refused: HashSet<u32>,
    /// What it maps later.
    pub(super) late_files: LateFiles,
    /// How its Python functions become known.
    pub(super) python: Option<PythonFollower>,
    /// Where the helper is.
    pub(super) helper: HelperPhase,
}

impl Covered {
    /// Whether another image has replaced the one that was planned for.
    pub(super) fn is_replaced(&self) -> bool {
        self.image.as_ref().is_some_and(Memory::is_gone)
    }
}

/// A helper on its way into a process that is covered already.
#[derive(Debug)]
pub(super) struct LateJoin {
    pub(super) since: Instant,
    pub(super) next: Instant,
    pub(super) way: Option<(Joining, FunctionRange)>,
}

/// A program that stands at its entry point until the helper is in. Dropping this lets it go on.
#[derive(Debug)]
pub(super) struct Entering {
    pub(super) process: Process,
    pub(super) plan: Plan,
    pub(super) range: FunctionRange,
    pub(super) way: EnteringWay,
}

#[derive(Debug)]
pub(super) enum EnteringWay {
    /// Another attempt on the same process has still to end.
    Waits(StoppedProgram, Room),
    /// The helper is on its way.
    Comes(Coming),
}

/// Which helper, in the order of their coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HelperId(pub(super) u32);

/// All processes that are followed.
#[derive(Debug, Default)]
pub(super) struct Processes {
    phases: BTreeMap<Pid, Phase>,
    /// The command that we started, if that is what the session is of.
    pub(super) command: Option<StartedCommand>,
    /// Whether somebody catches the children of the command at their execs, and tells of those.
    pub(super) are_caught: bool,
    /// Whether the last of the named processes to go executed another program.
    pub(super) root_was_replaced: bool,
    /// How often a process was covered: the next index.
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

    /// All of which it is known which they are: also those at their entry point.
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

    /// Their numbers, those from this one on first.
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
        self.coverings
    }

    /// A process is covered from here on, with the next index if it is new.
    pub(super) fn insert(&mut self, pid: Pid, covered: Covered) {
        self.coverings = self.coverings.max(covered.index.saturating_add(1));
        self.phases.insert(pid, Phase::Covered(covered));
    }

    /// Forgets a process, unless its program stands at its entry point. What was covered of it.
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

    /// The helper is to be brought into a process as soon as its interpreter allows. The command's tracer
    /// must let it go.
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

    /// The kernel announced an exec that is still to be told of.
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

    /// An announced exec was told of.
    pub(super) fn exec_is_told(&mut self, pid: Pid) {
        if let Some(Phase::Executed { .. }) = self.phases.get(&pid)
            && let Some(before) = self.remove(pid)
        {
            self.insert(pid, before);
        }
    }

    /// Execs that were announced before this and not told of.
    pub(super) fn untold(&self, before: Instant) -> Vec<Pid> {
        let is_late = |phase: &Phase| matches!(phase, Phase::Executed { since, .. } if *since <= before);
        self.phases.iter().filter(|(_, phase)| is_late(phase)).map(|(pid, _)| *pid).collect()
    }

    /// A program stands at its entry point.
    pub(super) fn enter(&mut self, pid: Pid, entering: Entering) {
        self.phases.insert(pid, Phase::Entering(entering));
    }

    /// Whether a program stands at its entry point until the helper is in.
    pub(super) fn is_entering(&self, pid: Pid) -> bool {
        matches!(self.phases.get(&pid), Some(Phase::Entering(_)))
    }

    /// All programs that do.
    pub(super) fn entering(&self) -> Vec<Pid> {
        let is_entering = |phase: &Phase| matches!(phase, Phase::Entering(_));
        self.phases.iter().filter(|(_, phase)| is_entering(phase)).map(|(pid, _)| *pid).collect()
    }

    /// Such a program, which is not in here any more.
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
        // Announced again, it waits no longer.
        processes.announce_exec(pid);
        assert_eq!(processes.untold(now), [pid]);
        processes.exec_is_told(pid);
        assert!(processes.untold(Instant::now()).is_empty());
    }
}
