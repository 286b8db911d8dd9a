//! The engine `bpf` as a session uses it. Doses go into the engine's policies, and counters come from its
//! maps.

use std::{io, sync::Arc};

use speed_bump_abi::{FunctionEntry, FunctionStats, Policy, times::FunctionTimes};

use super::{
    BpfEngine, Form,
    functions::FunctionMaps,
    switch::{NumberedPolicy, PolicySwitch},
};
use crate::{
    engine::{Counters, Dose, EngineKind, NumberedDose, Policies, SetError, TakeHistogram},
    policy::DelayBound,
    units::Nanos,
};

/// The engine `bpf` as a session uses it. This value does not keep the object loaded.
#[derive(Debug)]
pub(crate) struct BpfDoses {
    switch: Arc<PolicySwitch>,
    functions: Arc<FunctionMaps>,
    form: Form,
}

impl BpfDoses {
    /// Takes a loaded object.
    pub(crate) fn new(engine: &BpfEngine) -> Self {
        let (switch, functions) = (Arc::clone(engine.switch()), Arc::clone(engine.functions()));
        Self { switch, functions, form: engine.form() }
    }

    /// Sets policies, like [`Policies::set`] sets doses.
    ///
    /// # Errors
    /// A number is beyond the capacity. Nothing has changed.
    pub(crate) fn set_policies(&self, policies: &[NumberedPolicy]) -> Result<Nanos, SetError> {
        Ok(self.switch.set(policies)?)
    }

    /// The present policy; `None` for a number beyond the capacity.
    pub(crate) fn policy(&self, number: u32) -> Option<Policy> {
        self.switch.policy(number)
    }
}

/// The policy for a dose that the BPF programs spin themselves.
pub(crate) fn policy_of(Dose { delay, frequency }: Dose) -> Policy {
    Policy { delay_ns: delay.0, frequency, ..Policy::default() }
}

impl Policies for BpfDoses {
    fn check(&self, doses: &[NumberedDose]) -> Result<(), SetError> {
        match doses.iter().find_map(|(_, dose)| self.form.lack(*dose, false)) {
            Some(lack) => Err(SetError::Unfit(lack)),
            None => Ok(()),
        }
    }

    fn set(&mut self, doses: &[NumberedDose]) -> Result<Nanos, SetError> {
        self.check(doses)?;
        let policies: Vec<_> = doses.iter().map(|(number, dose)| (*number, policy_of(*dose))).collect();
        self.set_policies(&policies)
    }

    fn assign(&mut self, function: u32, number: Option<u32>) {
        self.functions.set_entry(function, number.map_or(FunctionEntry::NONE, FunctionEntry::of));
    }

    fn set_bound(&mut self, bound: DelayBound) -> Result<(), SetError> {
        self.switch.set_bound(bound);
        Ok(())
    }

    fn spins(&self, _delay: Nanos) -> EngineKind {
        EngineKind::Bpf
    }
}

impl Counters for BpfDoses {
    fn read(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>> {
        self.functions.stats_of(first, count)
    }

    fn histograms(&self, first: u32, count: u32, take: &mut TakeHistogram<'_>) -> io::Result<()> {
        self.functions.histograms_of(first, count, take)
    }

    fn times(&self, first: u32, count: u32) -> io::Result<Vec<Option<FunctionTimes>>> {
        Ok(self.functions.times().read(first, count))
    }

    fn clear(&mut self, function: u32) -> io::Result<()> {
        self.functions.clear_stats(function)
    }
}
