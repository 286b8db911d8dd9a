//! What functions share with units of work, by the threads in which sampling saw them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    inner_unit::{Countable, Polls},
    sampled::{is_of, is_same},
};
use crate::{
    experiment::{
        live::Counted,
        metric::Metric,
        record::{Candidate, InCommon, Sharing},
    },
    probe::plan::SelectedFunction,
    process::Process,
    sampling::{
        profile::{FunctionSeen, Profile, ThreadOf},
        threads::ByPointer,
    },
    session::handle::Handle,
    targets::{TargetIndex, TargetKind},
    units::Pid,
};

/// The most threads that call the unit's function and are recorded.
const CALLERS: usize = 64;

/// What the census observes of units and threads.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The profile, if there was none before.
    pub(super) profile: Option<Profile>,
    /// Mean number of units in progress; `None` if unknown.
    pub(super) under_way: Option<f64>,
    /// Why calls were missed.
    pub(super) missed_calls: Vec<String>,
    /// The counts, again and again, if the user named the functions.
    pub(super) polls: Polls,
    /// Functions whose calls may be steps of long units.
    pub(super) steps: Vec<Countable>,
    /// Thread pointers of threads that called the unit's function.
    callers: BTreeSet<u64>,
    /// Thread pointers of threads that called other functions last.
    of_functions: Vec<(SelectedFunction, u64)>,
}

impl Seen {
    /// Adds the threads that called the unit's function last, if the unit is a call of one.
    pub(super) fn add_callers(&mut self, handle: &Handle, unit: Option<TargetIndex>) {
        let Some(unit) = unit.filter(|_| self.callers.len() < CALLERS) else { return };
        // Without them, the report has less about threads.
        let callers = handle.controls().last_callers(Some(unit)).unwrap_or_default();
        self.callers.extend(callers.into_iter().map(|(_, pointer)| pointer).take(CALLERS));
    }

    /// Adds the threads that called all other functions last: samples may not show a function with few calls.
    pub(super) fn take_callers(&mut self, handle: &Handle) {
        self.of_functions = handle.controls().last_callers(None).unwrap_or_default();
    }

    /// Sets for each candidate what it shares with the units of `metric`. Returns the threads that do units,
    /// as far as they are known.
    pub(super) fn find_sharing(
        &self,
        counted: &mut Counted,
        profile: &Profile,
        metric: &dyn Metric,
    ) -> BTreeSet<ThreadOf> {
        let mut pointers = Pointers::read(profile);
        let units = self.unit_threads(counted, profile, metric, &mut pointers);
        let units = UnitThreads::new(units, profile);
        for (candidate, function) in counted.candidates.iter_mut().zip(&counted.functions) {
            let seen = profile.functions.iter().filter(|of| is_of(candidate, of));
            let mut threads: BTreeSet<ThreadOf> = seen.flat_map(|of| of.threads.keys().copied()).collect();
            if threads.is_empty() {
                let callers = self.of_functions.iter().filter(|(of, _)| of == function);
                threads.extend(callers.filter_map(|(_, pointer)| pointers.find(*pointer)));
            }
            if threads.is_empty() {
                continue;
            }
            let is_known = !units.threads.is_empty();
            let with_units = is_known.then(|| units.in_common(candidate, &threads, profile));
            let threads = threads.iter().map(|of| of.thread).collect();
            candidate.sharing = Some(Sharing { threads, with_units });
        }
        units.threads
    }

    /// The threads that do units, as far as known.
    fn unit_threads(
        &self,
        counted: &Counted,
        profile: &Profile,
        metric: &dyn Metric,
        pointers: &mut Pointers,
    ) -> BTreeSet<ThreadOf> {
        let is_done_in = |of: &&ThreadOf| metric.is_done_in(of.thread) == Some(true);
        let mut units: BTreeSet<ThreadOf> = profile.threads.keys().filter(is_done_in).copied().collect();
        units.extend(self.callers.iter().filter_map(|pointer| pointers.find(*pointer)));
        if let Some(unit) = counted.progress.as_ref().filter(|_| units.is_empty()) {
            let is_unit = |of: &&FunctionSeen| is_same(&unit.file, &unit.name, unit.line, of);
            let seen = profile.functions.iter().filter(is_unit);
            units.extend(seen.flat_map(|of| of.threads.keys().copied()));
        }
        units
    }
}

/// The threads of all processes, by their thread pointers.
struct Pointers(Vec<ByPointer>);

impl Pointers {
    fn read(profile: &Profile) -> Self {
        let processes: BTreeSet<Pid> = profile.threads.keys().map(|of| of.process).collect();
        let opened = processes.into_iter().filter_map(|process| Process::open(process).ok());
        Self(opened.map(|process| ByPointer::new(&process)).collect())
    }

    /// A child's threads have the same pointers as its parent's; then the process is unknown.
    fn find(&mut self, pointer: u64) -> Option<ThreadOf> {
        let of = |threads: &mut ByPointer| {
            let thread = threads.find(pointer)?;
            Some(ThreadOf { process: threads.process(), thread })
        };
        match self.0.iter_mut().filter_map(of).collect::<Vec<_>>()[..] {
            [thread] => Some(thread),
            _ => None,
        }
    }
}

/// The threads that do units.
struct UnitThreads {
    threads: BTreeSet<ThreadOf>,
    /// Futexes on which they wait, except the interpreter's own.
    waits: BTreeMap<(Pid, u64), BTreeSet<ThreadOf>>,
    /// See [`InCommon`].
    processor_wait: Option<f64>,
}

impl UnitThreads {
    fn new(threads: BTreeSet<ThreadOf>, profile: &Profile) -> Self {
        let mut waits: BTreeMap<(Pid, u64), BTreeSet<ThreadOf>> = BTreeMap::new();
        let (mut ran, mut waited) = (0, 0);
        for thread in &threads {
            for lock in locks(thread, profile) {
                waits.entry(lock).or_default().insert(*thread);
            }
            if let Some(seen) = profile.threads.get(thread) {
                ran += seen.ran.0;
                waited += seen.waited.0;
            }
        }
        let processor_wait = (ran > 0).then(|| waited as f64 / (ran + waited) as f64);
        Self { threads, waits, processor_wait }
    }

    /// What the threads of a candidate share with these.
    fn in_common(&self, candidate: &Candidate, threads: &BTreeSet<ThreadOf>, profile: &Profile) -> InCommon {
        let others: Vec<&ThreadOf> = threads.difference(&self.threads).collect();
        let executes_python = |of: &ThreadOf| profile.threads.get(of).is_some_and(|seen| seen.ticks > 0);
        let shares_gil = |of: &&ThreadOf| {
            profile.interpreters.get(&of.process).is_some_and(|interpreter| interpreter.has_gil)
                && self.threads.iter().any(|unit| unit.process == of.process && executes_python(unit))
        };
        let is_waited_on = |lock: &(Pid, u64), by: &ThreadOf| {
            self.waits.get(lock).is_some_and(|units| units.iter().any(|unit| unit != by))
        };
        let futexes: BTreeSet<(Pid, u64)> = threads
            .iter()
            .flat_map(|of| locks(of, profile).filter(move |lock| is_waited_on(lock, of)))
            .collect();
        InCommon {
            threads: threads.len() - others.len(),
            gil: candidate.kind == TargetKind::Python && others.iter().any(shares_gil),
            futexes: futexes.len(),
            processor_wait: self.processor_wait,
        }
    }
}

/// The futexes on which a thread waited, except the interpreter's own.
fn locks(of: &ThreadOf, profile: &Profile) -> impl Iterator<Item = (Pid, u64)> {
    let interpreter = profile.interpreters.get(&of.process);
    let seen = profile.threads.get(of).into_iter().flat_map(|seen| &seen.locks);
    let is_own = move |lock: u64| interpreter.is_some_and(|interpreter| interpreter.is_own_lock(lock));
    let process = of.process;
    seen.filter(move |lock| !is_own(**lock)).map(move |lock| (process, *lock))
}
