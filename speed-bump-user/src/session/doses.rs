//! The doses of a session, the functions that have them, and what was counted of those: what may be asked
//! and changed at any moment, without the event loop.

use std::{
    io,
    sync::{Arc, Weak},
};

use serde::Serialize;
use speed_bump_abi::FunctionEntry;

use super::{
    SessionError,
    functions::{FunctionRange, FunctionTable},
    limits,
    signals::Signals,
    snapshot::Snapshot,
};
use crate::{
    engine::bpf::{
        BpfEngine, Form,
        functions::FunctionMaps,
        switch::{PolicySwitch, now},
    },
    policy::{Dose, PolicyTable, Selection},
    probe::plan::SelectedFunction,
    python::helper::Block,
    units::{Nanos, Pid},
};

/// Doses are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Every call that begins at this time (`CLOCK_MONOTONIC`) or later has them.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
}

/// See above. Whoever holds it must not wait for a process, but for signals on their way.
#[derive(Debug)]
pub(crate) struct Doses {
    pub(super) switch: Arc<PolicySwitch>,
    maps: Arc<FunctionMaps>,
    form: Form,
    pub(super) functions: FunctionTable,
    pub(super) policies: PolicyTable,
    pub(super) signals: Signals,
    /// What is shared with helpers, and the processes that they were brought into.
    blocks: Vec<(Pid, Weak<Block>)>,
}

impl Doses {
    /// Brings the doses of the start into force.
    pub(super) fn start(
        engine: &BpfEngine,
        functions: FunctionTable,
        policies: PolicyTable,
        signals: Signals,
    ) -> Result<Self, SessionError> {
        let (switch, maps) = (Arc::clone(engine.switch()), Arc::clone(engine.functions()));
        let form = engine.form();
        let all: Vec<_> = policies.numbered().map(|(number, dose)| (number, signals.policy(dose))).collect();
        switch.set(&all)?;
        Ok(Self { switch, maps, form, functions, policies, signals, blocks: Vec::new() })
    }

    /// Sets doses, which come into force together. Of several for the same functions the last counts.
    ///
    /// Where the helper is to spin other delays than before, those calls are not delayed for some
    /// milliseconds, until no signal with the old meaning is on its way.
    ///
    /// # Errors
    /// A target or a delay that cannot be; nothing has changed then.
    pub(super) fn set(&mut self, changes: &[(Selection, Dose)]) -> Result<Applied, SessionError> {
        let mut policies = self.policies.clone();
        let mut numbers = Vec::with_capacity(changes.len());
        for (selection, dose) in changes {
            numbers.push((policies.set(selection, *dose)?, *dose));
        }
        let signals = self.signals.reassigned(&policies, self.form)?;
        for (_, dose) in changes {
            let is_signalled = signals.iter().any(|signal| signal.delay == dose.delay);
            if let Some(lack) = limits::lack(self.form, *dose, is_signalled) {
                return Err(SessionError::Unfit { lack });
            }
        }
        self.reassign_signals(signals);
        self.make_own(changes, &policies)?;
        self.policies = policies;
        let policies: Vec<_> =
            numbers.into_iter().map(|(number, dose)| (number, self.signals.policy(dose))).collect();
        let at = self.switch.set(&policies)?;
        Ok(Applied { at })
    }

    /// Has functions follow policies of their own, which are for the time being as those of their targets.
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
        let as_before =
            new.iter().map(|(function, number)| (*number, self.signals.policy(known.dose(function.target))));
        self.switch.set(&as_before.collect::<Vec<_>>())?;
        for (function, number) in new {
            for index in self.functions.indices(function) {
                self.maps.set_entry(index, FunctionEntry::of(number));
            }
        }
        Ok(())
    }

    /// The index of a function, which the engine knows from here on.
    pub(super) fn enter(&mut self, function: &SelectedFunction) -> Result<u32, SessionError> {
        let (index, is_new) = self.functions.enter(function)?;
        if is_new {
            self.maps.set_entry(index, FunctionEntry::of(self.policies.number(function)));
        }
        Ok(index)
    }

    /// Says which function a number of a range is. `false` where there is no room for its name.
    pub(super) fn name(&mut self, range: FunctionRange, number: u32, function: SelectedFunction) -> bool {
        let own = self.policies.own_number(&function);
        let has_room = self.functions.name(range, number, &function);
        if let (true, Some(index), Some(own)) = (has_room, range.index(number), own) {
            self.maps.set_entry(index, FunctionEntry::of(own));
        }
        has_room
    }

    /// Gives a range back; what was counted stays.
    pub(super) fn give_back(&mut self, range: FunctionRange) {
        let maps = &self.maps;
        self.functions.give_back(range, |index| maps.stats(index).unwrap_or_default());
        for index in range.first..range.first.saturating_add(range.count) {
            maps.set_entry(index, FunctionEntry::NONE);
            if let Err(error) = maps.clear_stats(index) {
                tracing::debug!("cannot clear the counters of function {index}: {error}");
            }
        }
    }

    /// What was counted so far, by function.
    pub(super) fn snapshot(&self) -> io::Result<Snapshot> {
        let at = now();
        let mut counts = self.functions.past().to_vec();
        for run in self.functions.runs() {
            let stats = self.maps.stats_of(run.first, run.count)?;
            for (id, stats) in self.functions.of_run(run).zip(stats) {
                if let Some(count) = counts.get_mut(id.0 as usize) {
                    *count += stats;
                }
            }
        }
        Ok(Snapshot { at, known: Arc::clone(self.functions.known()), counts })
    }

    /// A helper is in a process, and shares this.
    pub(super) fn add_block(&mut self, owner: Pid, block: &Arc<Block>) {
        self.blocks.retain(|(_, block)| block.strong_count() > 0);
        self.blocks.push((owner, Arc::downgrade(block)));
    }

    /// What is shared with helpers that are in.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (Pid, Arc<Block>)> {
        self.blocks.iter().filter_map(|(owner, block)| Some((*owner, block.upgrade()?)))
    }
}
