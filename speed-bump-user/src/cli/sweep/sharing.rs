//! What functions have in common with units of work, by where sampling saw them.

use std::collections::BTreeSet;

use super::sampled::{is_of, is_same};
use crate::{
    experiment::{
        live::Counted,
        metric::Metric,
        record::{Candidate, InCommon, Sharing},
    },
    process::Process,
    sampling::{
        profile::{FunctionSeen, Profile, ThreadOf},
        threads,
    },
    session::handle::Handle,
    targets::{TargetIndex, TargetKind},
    units::Pid,
};

/// Threads that call the unit's function and are told apart.
const CALLERS: usize = 64;

/// What is seen of units and threads while calls are counted.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What sampling saw, where that was not known yet.
    pub(super) profile: Option<Profile>,
    /// Units that were under way at once, on average; `None` where that is not known.
    pub(super) under_way: Option<f64>,
    /// Thread pointers of threads that called the unit's function.
    callers: BTreeSet<u64>,
}

impl Seen {
    /// Adds the threads that called the unit's function last, if the unit is a call of one.
    pub(super) fn add_callers(&mut self, handle: &Handle, unit: Option<TargetIndex>) {
        let Some(unit) = unit.filter(|_| self.callers.len() < CALLERS) else { return };
        // Without them, less is told.
        self.callers.extend(handle.controls().last_callers(unit).unwrap_or_default());
    }

    /// Says of each candidate what it has in common with the units that `metric` counts.
    pub(super) fn find_sharing(&self, counted: &mut Counted, profile: &Profile, metric: &dyn Metric) {
        let units = self.unit_threads(counted, profile, metric);
        for candidate in &mut counted.candidates {
            let seen = profile.functions.iter().filter(|of| is_of(candidate, of));
            let threads: BTreeSet<ThreadOf> = seen.flat_map(|of| of.threads.keys().copied()).collect();
            if threads.is_empty() {
                continue;
            }
            let with_units = (!units.is_empty()).then(|| in_common(candidate, &threads, &units, profile));
            let threads = threads.iter().map(|of| of.thread).collect();
            candidate.sharing = Some(Sharing { threads, with_units });
        }
    }

    /// The threads that do units, as far as that is known.
    fn unit_threads(&self, counted: &Counted, profile: &Profile, metric: &dyn Metric) -> BTreeSet<ThreadOf> {
        let is_done_in = |of: &&ThreadOf| metric.is_done_in(of.thread) == Some(true);
        let mut units: BTreeSet<ThreadOf> = profile.threads.keys().filter(is_done_in).copied().collect();
        let processes: BTreeSet<Pid> = profile.threads.keys().map(|of| of.process).collect();
        let processes: Vec<Process> =
            processes.into_iter().filter_map(|process| Process::open(process).ok()).collect();
        for pointer in &self.callers {
            let of = |process: &Process| {
                let thread = threads::with_pointer(process, *pointer)?;
                Some(ThreadOf { process: process.pid(), thread })
            };
            // A child has its threads where its parent has them: then it is not known which is meant.
            if let [thread] = processes.iter().filter_map(of).collect::<Vec<_>>()[..] {
                units.insert(thread);
            }
        }
        if let Some(unit) = counted.progress.as_ref().filter(|_| units.is_empty()) {
            let is_unit = |of: &&FunctionSeen| is_same(&unit.file, &unit.name, unit.line, of);
            let seen = profile.functions.iter().filter(is_unit);
            units.extend(seen.flat_map(|of| of.threads.keys().copied()));
        }
        units
    }
}

fn in_common(
    candidate: &Candidate,
    threads: &BTreeSet<ThreadOf>,
    units: &BTreeSet<ThreadOf>,
    profile: &Profile,
) -> InCommon {
    let others: Vec<&ThreadOf> = threads.difference(units).collect();
    let executes_python = |of: &ThreadOf| profile.threads.get(of).is_some_and(|seen| seen.ticks > 0);
    let gil = candidate.kind == TargetKind::Python
        && others.iter().any(|of| {
            profile.interpreters.get(&of.process).is_some_and(|interpreter| interpreter.has_gil)
                && units.iter().any(|unit| unit.process == of.process && executes_python(unit))
        });
    let locks = |of: &ThreadOf| -> BTreeSet<(Pid, u64)> {
        let interpreter = profile.interpreters.get(&of.process);
        let seen = profile.threads.get(of).into_iter().flat_map(|seen| &seen.locks);
        let of_program =
            seen.filter(|lock| interpreter.is_none_or(|interpreter| !interpreter.is_own_lock(**lock)));
        of_program.map(|lock| (of.process, *lock)).collect()
    };
    let is_waited_on =
        |lock: &(Pid, u64), by: &ThreadOf| units.iter().any(|unit| unit != by && locks(unit).contains(lock));
    let futexes: BTreeSet<(Pid, u64)> = threads
        .iter()
        .flat_map(|of| locks(of).into_iter().filter(|lock| is_waited_on(lock, of)).collect::<Vec<_>>())
        .collect();
    InCommon {
        threads: threads.len() - others.len(),
        gil,
        futexes: futexes.len(),
        processor_wait: processor_wait(units, profile),
    }
}

fn processor_wait(threads: &BTreeSet<ThreadOf>, profile: &Profile) -> Option<f64> {
    let (mut ran, mut waited) = (0, 0);
    for seen in threads.iter().filter_map(|of| profile.threads.get(of)) {
        ran += seen.ran.0;
        waited += seen.waited.0;
    }
    (ran > 0).then(|| waited as f64 / (ran + waited) as f64)
}
