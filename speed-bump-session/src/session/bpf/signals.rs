//! The engine `signal` in a session. Helpers spin long delays, with a signal for each delay, and the BPF
//! programs spin the other delays.
//!
//! When signals get other delays, the steps have this order. We stop delaying calls with the old delays. We
//! wait for pending signals. The helpers get the new delays. Then the new doses take effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use speed_bump_abi::{FunctionStats, Policy, times::FunctionTimes};

use crate::{
    engine::{
        Counters, Dose, EngineChoice, EngineKind, NumberedDose, Policies, SetError, TakeHistogram,
        bpf::{
            Form,
            doses::{BpfDoses, policy_of},
            switch::NumberedPolicy,
        },
        signal::{self, DelaySignal, UnderWay},
    },
    policy::DelayBound,
    python::helper::Block,
    units::{Nanos, Pid},
};

/// The signals of a session. Clones share the same state.
#[derive(Clone, Debug)]
pub(super) struct SessionSignals(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    choice: EngineChoice,
    form: Form,
    /// Whether the BPF program may spin if it may send no signal.
    or_spin: bool,
    assigned: Vec<DelaySignal>,
    cost: Nanos,
    /// Whether any helper has confirmed that it handles its signals.
    any_answered: bool,
    /// Whether the helpers know the present delays of the signals.
    are_told: bool,
    /// All doses, by number.
    doses: BTreeMap<u32, Dose>,
    /// The blocks that we share with helpers, each with the process into which we loaded the helper.
    blocks: Vec<(Pid, Weak<Block>)>,
}

impl SessionSignals {
    /// A session with these signals. `cost` is the cost of sending one.
    pub(super) fn new(
        choice: EngineChoice,
        form: Form,
        or_spin: bool,
        assigned: Vec<DelaySignal>,
        cost: Nanos,
    ) -> Self {
        let (any_answered, are_told, doses, blocks) = (false, true, BTreeMap::new(), Vec::new());
        let inner = Inner { choice, form, or_spin, assigned, cost, any_answered, are_told, doses, blocks };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// What helpers need to know: the signals, and how long they spin on each.
    pub(super) fn for_helpers(&self) -> Vec<(u32, Nanos)> {
        self.lock().for_helpers()
    }

    /// Adds the block of a helper that we have loaded. The helper gets the present signals, and all later
    /// changes. Returns `false` if the session has no signals.
    pub(super) fn add_block(&self, owner: Pid, block: &Arc<Block>) -> bool {
        let mut inner = self.lock();
        if inner.assigned.is_empty() {
            return false;
        }
        // The delays may have changed since we made the block.
        if let Err(error) = block.set_signals(&inner.for_helpers()) {
            tracing::debug!("the helper in process {owner} keeps its delays: {error}");
        }
        inner.blocks.retain(|(_, block)| block.strong_count() > 0);
        inner.blocks.push((owner, Arc::downgrade(block)));
        true
    }

    /// Records that a helper has confirmed its signals, so that its process may get signals.
    pub(super) fn has_answered(&self) {
        self.lock().any_answered = true;
    }

    /// The signals that processes may have got: bit N is signal N + 1. `None` if no helper has confirmed its
    /// signals.
    pub(super) fn sent(&self) -> Option<u64> {
        let inner = self.lock();
        let bit = |signal: &DelaySignal| 1_u64 << (signal.number - 1);
        inner.any_answered.then(|| inner.assigned.iter().fold(0, |sent, signal| sent | bit(signal)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that holds the lock can panic halfway, so the data is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn for_helpers(&self) -> Vec<(u32, Nanos)> {
        let share = |delay: Nanos| Nanos(Policy::helpers_share_ns(delay.0));
        self.assigned.iter().map(|signal| (signal.number, share(signal.delay))).collect()
    }

    /// The signal for this delay.
    fn for_delay(&self, delay: Nanos) -> Option<&DelaySignal> {
        self.assigned.iter().find(|signal| signal.delay == delay)
    }

    /// What the BPF program does on a call with this dose.
    fn policy(&self, dose: Dose) -> Policy {
        match self.for_delay(dose.delay) {
            Some(signal) => Policy {
                signal: signal.number,
                or_spin: u32::from(self.or_spin),
                signal_ns: self.cost.0,
                ..policy_of(dose)
            },
            None => policy_of(dose),
        }
    }

    fn is_signalled(&self, delay: Nanos) -> bool {
        self.choice.engine(delay, self.form) == EngineKind::Signal
    }

    /// The signals after these changes. Signals keep their delays where possible, and get new ones where
    /// doses need them.
    fn reassigned(&self, changes: &[NumberedDose]) -> Result<Vec<DelaySignal>, SetError> {
        let is_new =
            |(_, dose): &NumberedDose| self.is_signalled(dose.delay) && self.for_delay(dose.delay).is_none();
        if !changes.iter().any(is_new) {
            return Ok(self.assigned.clone());
        }
        let mut doses = self.doses.clone();
        doses.extend(changes.iter().copied());
        let delays = doses.values().map(|dose| dose.delay).filter(|delay| self.is_signalled(*delay));
        let delays: BTreeSet<Nanos> = delays.collect();
        let assigned = signal::reassign(&self.assigned, &delays);
        let has = |delay: &Nanos| assigned.iter().any(|signal| signal.delay == *delay);
        match delays.iter().find(|delay| !has(delay)) {
            Some(delay) if self.choice.wants_helper() => Err(SetError::Unfit(format!(
                "a delay of {delay} needs a signal of its own, and the {} of this session serve other \
                 delays: use one of those, or start a session with as many different delays",
                assigned.len()
            ))),
            _ => Ok(assigned),
        }
    }

    /// Like [`reassigned`](Self::reassigned), but refuses doses that this kernel cannot deliver.
    fn checked(&self, changes: &[NumberedDose]) -> Result<Vec<DelaySignal>, SetError> {
        let assigned = self.reassigned(changes)?;
        for (_, dose) in changes {
            let is_signalled = assigned.iter().any(|signal| signal.delay == dose.delay);
            if let Some(lack) = self.form.lack(*dose, is_signalled) {
                return Err(SetError::Unfit(lack));
            }
        }
        Ok(assigned)
    }

    /// Gives the session's signals other delays, if these doses need that. From now on, we do not delay calls
    /// with the previous delays, until their new doses take effect.
    fn pause(&mut self, bpf: &BpfDoses, doses: &[NumberedDose]) -> Result<UnderWay, SetError> {
        let assigned = self.checked(doses)?;
        if assigned == self.assigned {
            return Ok(UnderWay::default());
        }
        let changed = self.assigned.iter().filter(|signal| !assigned.contains(signal));
        let changed: Vec<u32> = changed.map(|signal| signal.number).collect();
        let is_changed = |policy: &Policy| changed.contains(&policy.signal);
        let policy = |number: &u32| Some((*number, bpf.policy(*number)?));
        let paused: Vec<NumberedPolicy> = self
            .doses
            .keys()
            .filter_map(policy)
            .filter(|(_, policy)| is_changed(policy))
            .map(|(number, policy)| (number, Policy { delay_ns: 0, signal: 0, ..policy }))
            .collect();
        bpf.set_policies(&paused)?;
        self.assigned = assigned;
        self.are_told = false;
        self.blocks.retain(|(_, block)| block.strong_count() > 0);
        let signals = changed.iter().fold(0, |signals, number| signals | 1_u64 << (number - 1));
        Ok(UnderWay { signals, processes: self.blocks.iter().map(|(owner, _)| *owner).collect() })
    }

    /// Tells the helpers the present delays of the signals, if they do not know them yet.
    fn tell(&mut self) {
        if std::mem::replace(&mut self.are_told, true) {
            return;
        }
        let slots = self.for_helpers();
        for (owner, block) in &self.blocks {
            let Some(block) = block.upgrade() else { continue };
            if let Err(error) = block.set_signals(&slots) {
                tracing::debug!("the helper in process {owner} keeps its delays: {error}");
            }
        }
    }
}

/// The doses of a session with the engine `signal`.
#[derive(Debug)]
pub(super) struct SignalDoses {
    pub(super) bpf: BpfDoses,
    pub(super) signals: SessionSignals,
}

impl Policies for SignalDoses {
    fn check(&self, doses: &[NumberedDose]) -> Result<(), SetError> {
        self.signals.lock().checked(doses).map(drop)
    }

    fn pause(&mut self, doses: &[NumberedDose]) -> Result<UnderWay, SetError> {
        self.signals.lock().pause(&self.bpf, doses)
    }

    fn set(&mut self, doses: &[NumberedDose]) -> Result<Nanos, SetError> {
        let mut signals = self.signals.lock();
        // Waits here only if the caller has not called `pause` itself.
        signals.pause(&self.bpf, doses)?.wait();
        signals.tell();
        let policies: Vec<_> = doses.iter().map(|(number, dose)| (*number, signals.policy(*dose))).collect();
        let at = self.bpf.set_policies(&policies)?;
        signals.doses.extend(doses.iter().copied());
        Ok(at)
    }

    fn assign(&mut self, function: u32, number: Option<u32>) {
        self.bpf.assign(function, number);
    }

    fn set_bound(&mut self, bound: DelayBound) -> Result<(), SetError> {
        self.bpf.set_bound(bound)
    }

    fn spins(&self, delay: Nanos) -> EngineKind {
        let signals = self.signals.lock();
        let has_answered = signals.any_answered || !signals.or_spin;
        let is_signal = signals.for_delay(delay).is_some() && has_answered;
        if is_signal { EngineKind::Signal } else { EngineKind::Bpf }
    }
}

impl Counters for SignalDoses {
    fn read(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>> {
        self.bpf.read(first, count)
    }

    fn histograms(&self, first: u32, count: u32, take: &mut TakeHistogram<'_>) -> io::Result<()> {
        self.bpf.histograms(first, count, take)
    }

    fn times(&self, first: u32, count: u32) -> io::Result<Vec<Option<FunctionTimes>>> {
        self.bpf.times(first, count)
    }

    fn clear(&mut self, function: u32) -> io::Result<()> {
        self.bpf.clear(function)
    }
}
