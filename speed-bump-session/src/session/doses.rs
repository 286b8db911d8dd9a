//! The doses of a session, the functions that have them, and the counts of these functions. Any thread may
//! read and change all this at any moment, without the event loop.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
};

use serde::Serialize;
use speed_bump_abi::{FunctionStats, Histogram, callers::PairTimes, times::FunctionTimes};

use super::{
    error::SessionError,
    functions::{Caller, FunctionRange, FunctionTable},
    known::FunctionId,
    settings::Settings,
    snapshot::Snapshot,
    told::ToldHelpers,
};
use crate::{
    engine::{Engine, NumberedDose, signal::UnderWay},
    policy::{DelayBound, Dose, PolicyTable, Selection},
    probe::plan::SelectedFunction,
    sys::clock::now,
    targets::{TargetChange, TargetIndex, Targets},
    units::Nanos,
};

/// The most functions with histograms of their delays. The histograms take 46 MB. We need the limit because
/// the numbers of functions come from helpers in target processes, which could write anything.
const HISTOGRAMS: usize = 32_768;

/// The most pairs of a caller and a function. The pairs take 15 MB. We need the limit because the numbers of
/// functions come from helpers in target processes, which could write anything.
const PAIRS: usize = 262_144;

/// The result of setting doses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The doses apply to every call that begins at this time (`CLOCK_MONOTONIC`) or later.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
}

/// Doses that are ready to be set, after we have waited for the old signals and the helpers. Nobody may set
/// other doses until then.
#[derive(Debug)]
pub(crate) struct Setting {
    doses: Vec<NumberedDose>,
    pub(super) under_way: UnderWay,
    pub(super) told: ToldHelpers,
    /// Why the session does not cover some functions of the targets in a process named on the command line;
    /// `None` if it covers all.
    pub(super) uncovered: Option<SessionError>,
}

/// The doses and counters of a session. A thread that holds the lock must not wait for a process.
#[derive(Debug)]
pub(crate) struct Doses {
    pub(super) engine: Box<dyn Engine>,
    pub(super) functions: FunctionTable,
    pub(super) policies: PolicyTable,
    pub(super) targets: Arc<Targets>,
    /// The most that each thread is delayed.
    bound: Option<DelayBound>,
    /// The histograms of functions in ranges that were given back.
    past_histograms: BTreeMap<FunctionId, Histogram>,
    /// The times of functions in ranges that were given back.
    past_times: BTreeMap<FunctionId, FunctionTimes>,
    /// The callers of functions in ranges that were given back.
    past_callers: Callers,
}

/// Which function calls which.
#[derive(Clone, Debug, Default)]
pub(super) struct Callers {
    /// Calls of one function by another. The called function comes first in the key.
    pub(super) pairs: BTreeMap<(FunctionId, Caller), PairTimes>,
    /// The number of calls whose caller we left out, because there is no room for more pairs.
    pub(super) left_out: u64,
}

impl Callers {
    fn add(&mut self, caller: Caller, callee: FunctionId, times: PairTimes) {
        if self.pairs.len() < PAIRS || self.pairs.contains_key(&(callee, caller)) {
            *self.pairs.entry((callee, caller)).or_default() += times;
        } else {
            self.left_out = self.left_out.saturating_add(times.calls);
        }
    }
}

impl Doses {
    /// Sets the initial doses, under the bound of the session.
    pub(super) fn start(
        mut engine: Box<dyn Engine>,
        functions: FunctionTable,
        settings: &Settings,
        targets: Arc<Targets>,
    ) -> Result<Self, SessionError> {
        let (policies, bound) = (settings.policies.clone(), settings.bound);
        if let Some(bound) = bound {
            engine.set_bound(bound)?;
        }
        engine.set(&policies.numbered().collect::<Vec<_>>())?;
        Ok(Self {
            engine,
            functions,
            policies,
            targets,
            bound,
            past_histograms: BTreeMap::new(),
            past_times: BTreeMap::new(),
            past_callers: Callers::default(),
        })
    }

    /// Adds and removes targets. The result has the doses to set: none for removed targets.
    ///
    /// # Errors
    /// There is no room, or a dose is invalid. Nothing has changed.
    pub(super) fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError> {
        let mut policies = self.policies.clone();
        let mut numbered: Vec<NumberedDose> = Vec::new();
        for target in &change.add {
            numbered.push((policies.add(target)?, policies.begins_with(target)));
        }
        let none = Dose { delay: Nanos(0), frequency: 1 };
        for index in &change.drop {
            numbered.push((policies.set(&Selection::Target(*index), none)?, none));
            let own: Vec<SelectedFunction> = policies.with_own(*index).cloned().collect();
            for function in own {
                numbered.push((policies.set(&Selection::Function(function), none)?, none));
            }
        }
        let under_way = self.engine.pause(&numbered)?;
        self.policies = policies;
        self.targets = Arc::new(self.targets.changed(change));
        Ok(Setting { doses: numbered, under_way, told: ToldHelpers::default(), uncovered: None })
    }

    /// Prepares to set doses.
    ///
    /// # Errors
    /// A target or delay is invalid. Nothing has changed.
    pub(super) fn pause(&mut self, changes: &[(Selection, Dose)]) -> Result<Setting, SessionError> {
        let mut policies = self.policies.clone();
        let mut numbered: Vec<NumberedDose> = Vec::with_capacity(changes.len());
        for (selection, dose) in changes {
            numbered.push((policies.set(selection, *dose)?, *dose));
        }
        self.engine.check(&numbered)?;
        self.make_own(changes, &policies)?;
        self.policies = policies;
        let under_way = self.engine.pause(&numbered)?;
        Ok(Setting { doses: numbered, under_way, told: ToldHelpers::default(), uncovered: None })
    }

    /// Sets doses, which take effect together. If there are several doses for the same function, the last one
    /// counts.
    ///
    /// # Errors
    /// The engine fails to set the doses.
    pub(super) fn set(&mut self, setting: &Setting) -> Result<Applied, SessionError> {
        let at = self.engine.set(&setting.doses)?;
        Ok(Applied { at })
    }

    /// Changes the most that each thread is delayed, from the next call on.
    ///
    /// # Errors
    /// The session began without a bound.
    pub(super) fn set_bound(&mut self, bound: DelayBound) -> Result<(), SessionError> {
        if self.bound.is_none() {
            return Err(SessionError::Unbounded);
        }
        self.engine.set_bound(bound)?;
        self.bound = Some(bound);
        Ok(())
    }

    /// The most that each thread is delayed.
    pub(super) fn bound(&self) -> Option<DelayBound> {
        self.bound
    }

    /// Gives functions their own doses, which at first equal the doses of their targets.
    fn make_own(
        &mut self,
        changes: &[(Selection, Dose)],
        policies: &PolicyTable,
    ) -> Result<(), SessionError> {
        let known = &self.policies;
        let new = changes.iter().filter_map(|(selection, _)| match selection {
            Selection::Function(function) if known.own_number(function).is_none() => {
                Some((function, policies.own_number(function)?))
            }
            Selection::Function(_) | Selection::Target(_) => None,
        });
        let new: Vec<(&SelectedFunction, u32)> = new.collect();
        if new.is_empty() {
            return Ok(());
        }
        let as_before: Vec<NumberedDose> =
            new.iter().map(|(function, number)| (*number, known.dose(function.target))).collect();
        self.engine.set(&as_before)?;
        for (function, number) in new {
            for index in self.functions.indices(function) {
                self.engine.assign(index, Some(number));
            }
        }
        Ok(())
    }

    /// The index of a function. If the function is new, tells the engine about it.
    pub(super) fn enter(&mut self, function: &SelectedFunction) -> Result<u32, SessionError> {
        let (index, is_new) = self.functions.enter(function)?;
        if is_new {
            self.engine.assign(index, Some(self.policies.number(function)));
        }
        Ok(index)
    }

    /// Names the function that has this number in a range. `false` if there is no room for its name.
    pub(super) fn name(&mut self, range: FunctionRange, number: u32, function: &SelectedFunction) -> bool {
        let own = self.policies.own_number(function);
        let has_room = self.functions.name(range, number, function);
        if let (true, Some(index), Some(own)) = (has_room, range.index(number), own) {
            self.engine.assign(index, Some(own));
        }
        has_room
    }

    /// Gives a range back. This keeps the counts of its functions. Before someone reserves the range again,
    /// it must be [wiped](Self::wipe).
    pub(super) fn give_back(&mut self, range: FunctionRange) {
        // Reads only the numbers that have names: most numbers have none.
        let mut stats = HashMap::new();
        for run in self.functions.runs_in(range) {
            match self.engine.read(run.first, run.count) {
                Ok(read) => stats.extend((run.first..).zip(read)),
                Err(error) => tracing::debug!("what {run:?} counted is not known: {error}"),
            }
            let (functions, past) = (&self.functions, &mut self.past_histograms);
            let known = self.engine.histograms(run.first, run.count, &mut |index, histogram| {
                add(past, functions.at(index), histogram);
            });
            if let Err(error) = known {
                tracing::debug!("how long {run:?} was delayed is not known: {error}");
            }
            let mut past = std::mem::take(&mut self.past_times);
            if let Err(error) = self.add_times(run, &mut past) {
                tracing::debug!("the times of {run:?} are not known: {error}");
            }
            self.past_times = past;
        }
        let mut past = std::mem::take(&mut self.past_callers);
        if let Err(error) = self.add_callers(range, &mut past) {
            tracing::debug!("who called {range:?} is not known: {error}");
        }
        self.past_callers = past;
        self.functions.give_back(range, |index| stats.get(&index).copied().unwrap_or_default());
    }

    /// Resets the counters of these indices, and takes their policies away.
    pub(super) fn wipe(&mut self, range: FunctionRange) {
        let stats = self.engine.read(range.first, range.count).unwrap_or_else(|error| {
            tracing::debug!("what {range:?} counted is not known: {error}");
            Vec::new()
        });
        for index in range.first..range.first.saturating_add(range.count) {
            self.engine.assign(index, None);
            let counted = stats.get(index.wrapping_sub(range.first) as usize);
            let is_clear = counted.is_some_and(|stats| *stats == FunctionStats::default());
            if !is_clear && let Err(error) = self.engine.clear(index) {
                tracing::debug!("cannot clear the counters of function {index}: {error}");
            }
        }
    }

    /// The counts so far, by function.
    pub(super) fn snapshot(&self) -> io::Result<Snapshot> {
        let at = now();
        let mut counts = self.functions.past().to_vec();
        let mut histograms = self.past_histograms.clone();
        let mut times = self.past_times.clone();
        for run in self.functions.runs() {
            let stats = self.engine.read(run.first, run.count)?;
            if stats.iter().any(|stats| stats.delayed > 0) {
                self.engine.histograms(run.first, run.count, &mut |index, histogram| {
                    add(&mut histograms, self.functions.at(index), histogram);
                })?;
            }
            for (id, stats) in self.functions.of_run(run).zip(stats) {
                if let Some(count) = counts.get_mut(id.0 as usize) {
                    *count += stats;
                }
            }
            self.add_times(run, &mut times)?;
        }
        Ok(Snapshot { at, known: Arc::clone(self.functions.known()), counts, histograms, times })
    }

    /// The thread pointers of the threads that called functions last, where we know them. This is for all
    /// functions, or for the functions of a target.
    pub(super) fn last_callers(
        &self,
        target: Option<TargetIndex>,
    ) -> io::Result<Vec<(SelectedFunction, u64)>> {
        let known = self.functions.known();
        let mut callers = Vec::new();
        for run in self.functions.runs() {
            for (index, id) in (run.first..).zip(self.functions.of_run(run)) {
                let function = known.get(id).filter(|of| target.is_none_or(|target| of.target == target));
                if let Some(function) = function
                    && let Some(caller) = self.engine.last_caller(index)?
                {
                    callers.push((function.clone(), caller));
                }
            }
        }
        Ok(callers)
    }

    /// The callers of functions so far.
    pub(super) fn callers(&self) -> io::Result<Callers> {
        let mut callers = self.past_callers.clone();
        self.add_callers(FunctionRange { first: 0, count: u32::MAX }, &mut callers)?;
        Ok(callers)
    }

    /// Adds the callers of functions in a range, as far as there is room.
    fn add_callers(&self, range: FunctionRange, callers: &mut Callers) -> io::Result<()> {
        self.engine.callers(range.first, range.count, &mut |pair| {
            let (caller, callee) = (self.functions.caller_at(pair.caller), self.functions.at(pair.callee));
            match (caller, callee) {
                (Some(caller), Some(callee)) => callers.add(caller, callee, pair.times),
                (None, Some(_)) => callers.left_out = callers.left_out.saturating_add(pair.times.calls),
                (_, None) => {}
            }
        })
    }

    /// Adds the times of a run of functions, if the session times them.
    fn add_times(
        &self,
        run: FunctionRange,
        times: &mut BTreeMap<FunctionId, FunctionTimes>,
    ) -> io::Result<()> {
        let of_run = self.engine.times(run.first, run.count)?;
        for (id, more) in self.functions.of_run(run).zip(of_run) {
            if let Some(more) = more {
                *times.entry(id).or_default() += more;
            }
        }
        Ok(())
    }
}

/// Adds to the histogram of a function, as far as there is room.
fn add(to: &mut BTreeMap<FunctionId, Histogram>, function: Option<FunctionId>, histogram: Histogram) {
    let Some(id) = function else { return };
    if to.len() < HISTOGRAMS || to.contains_key(&id) {
        *to.entry(id).or_default() += histogram;
    }
}
