//! The engine `signal` in a session: which delays it has, which processes may be sent signals, and the end of
//! that.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use speed_bump_abi::{Handshake, Policy};

use crate::{
    engine::{
        EngineChoice, EngineKind,
        bpf::{Form, switch::NumberedPolicy},
        signal::{self, DelaySignal},
    },
    policy::{Dose, PolicyTable},
    probe::{plan::Plan, resolve::Resolver},
    process::Process,
    python::helper::block::SignalAnswer,
    session::{Session, SessionError, Settings, doses::Doses, helpers::HelperId},
    units::{Nanos, Pid},
};

/// How long the last signals may be on their way.
const ON_THEIR_WAY: Duration = Duration::from_millis(500);
/// How often it is looked whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The signals of a session.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Whether the program may spin where no signal may be sent.
    or_spin: bool,
    assigned: Vec<DelaySignal>,
    cost: Nanos,
    /// Whether any helper has answered.
    any_answered: bool,
    /// What the user should hear of delays for which SIGURG is not to be had.
    pub(super) limits: Vec<String>,
}

impl Signals {
    /// Chooses a signal for each delay that the engine is to spin; none if it cannot be used here.
    pub(super) fn choose(
        resolver: &Resolver,
        settings: &Settings,
        roots: &[(Process, Plan)],
    ) -> Result<Self, SessionError> {
        let policies = &settings.policies;
        let form = resolver.calibration().form();
        let or_spin = policies.choice() == EngineChoice::Auto && form.longest_spin().is_none();
        let Some(cost) = resolver.calibration().signal() else {
            return Ok(Self { or_spin, ..Self::default() });
        };
        let delays = policies.signalled(form);
        // One that has ended is told of later.
        let masks = roots.iter().filter_map(|(process, _)| signal::masks(process).ok());
        let used = masks.fold(0, |used, masks| used | masks.used());
        let assigned: Vec<DelaySignal> = if or_spin {
            signal::choose_harmless(&delays, used).into_iter().collect()
        } else {
            signal::choose(&delays, used).map_err(|error| SessionError::Signal(error.to_string()))?
        };
        let mut signals = Self { or_spin, assigned, cost, ..Self::default() };
        // Where none is to come, the kernel spins whatever the signals are. Of a command nothing is known
        // yet.
        let helper_may_come =
            roots.is_empty() || !or_spin || roots.iter().any(|(_, plan)| plan.wants_helper());
        if helper_may_come {
            signals.limits = signals.limits_of(&delays);
        }
        for limit in &signals.limits {
            tracing::warn!("{limit}");
        }
        Ok(signals)
    }

    fn limits_of(&self, delays: &BTreeSet<Nanos>) -> Vec<String> {
        let mut limits = Vec::new();
        let list = |delays: &mut dyn Iterator<Item = Nanos>| {
            delays.map(|delay| delay.to_string()).collect::<Vec<_>>().join(", ")
        };
        let deadly =
            list(&mut self.assigned.iter().filter(|signal| signal.is_deadly()).map(|signal| signal.delay));
        if !deadly.is_empty() {
            limits.push(format!(
                "delays of {deadly} need real-time signals, because SIGURG serves one delay only, and only \
                 in processes that do not use it; a process that removes the handler of a real-time signal \
                 while one is on its way is killed by it"
            ));
        }
        let spun = list(&mut delays.iter().copied().filter(|delay| self.of(*delay).is_none()));
        if !spun.is_empty() {
            limits.push(format!(
                "delays of {spun} are spun in the kernel, where nothing else runs on the processor \
                 meanwhile, because SIGURG serves one delay only, and only in processes that do not use it; \
                 `--engine signal` uses real-time signals too"
            ));
        }
        limits
    }

    /// The signals as these doses want them.
    ///
    /// # Errors
    /// The user wants the helper to spin each delay, and there are too few signals.
    pub(super) fn reassigned(
        &self,
        policies: &PolicyTable,
        form: Form,
    ) -> Result<Vec<DelaySignal>, SessionError> {
        let delays = policies.signalled(form);
        let assigned = signal::reassign(&self.assigned, &delays);
        let has = |delay: &Nanos| assigned.iter().any(|signal| signal.delay == *delay);
        match delays.iter().find(|delay| !has(delay)) {
            Some(delay) if policies.wants_helper() => Err(SessionError::Signal(format!(
                "a delay of {delay} needs a signal of its own, and the {} of this session serve other \
                 delays: use one of those, or start a session with as many different delays",
                assigned.len()
            ))),
            _ => Ok(assigned),
        }
    }

    /// The signal that stands for this delay.
    fn of(&self, delay: Nanos) -> Option<&DelaySignal> {
        self.assigned.iter().find(|signal| signal.delay == delay)
    }

    /// What the BPF program does on a call with this dose.
    pub(super) fn policy(&self, Dose { delay, frequency }: Dose) -> Policy {
        let plain = Policy { delay_ns: delay.0, frequency, ..Policy::default() };
        match self.of(delay) {
            Some(signal) => Policy {
                signal: signal.number,
                or_spin: u32::from(self.or_spin),
                signal_ns: self.cost.0,
                ..plain
            },
            None => plain,
        }
    }

    /// What the helpers are told: signals, and how long they spin on each.
    pub(super) fn for_helpers(&self) -> Vec<(u32, Nanos)> {
        let share = |delay: Nanos| Nanos(Policy::helpers_share_ns(delay.0));
        self.assigned.iter().map(|signal| (signal.number, share(signal.delay))).collect()
    }

    /// Who has spun delays of this length.
    pub(super) fn engine(&self, delay: Nanos) -> EngineKind {
        let is_assigned = self.of(delay).is_some();
        let has_answered = self.any_answered || !self.or_spin;
        if is_assigned && has_answered { EngineKind::Signal } else { EngineKind::Bpf }
    }
}

impl Session {
    /// A helper is in, and handles its signals: from now on they are sent to its process.
    pub(super) fn shake_hands(&mut self, id: HelperId) {
        let Some((owner, block)) = self.helpers.block(id) else { return };
        {
            let mut doses = self.doses();
            if doses.signals.assigned.is_empty() {
                return;
            }
            // They may have changed since the block was made.
            if let Err(error) = block.set_signals(&doses.signals.for_helpers()) {
                tracing::debug!("the helper in process {owner} keeps its delays: {error}");
            }
            doses.add_block(owner, &block);
        }
        let SignalAnswer { handler, taken } = match block.signal_answer() {
            Ok(Some(answer)) => answer,
            Ok(None) => return self.warn(format!("process {owner}: its helper handles no signals")),
            Err(error) => {
                return self.warn(format!("process {owner}: its helper's signals are not known: {error}"));
            }
        };
        for number in taken {
            self.warn(format!(
                "process {owner}: it uses signal {number} itself, which stands for a delay here; calls with \
                 that delay are not delayed there, but counted as missed"
            ));
        }
        let Ok(process) = Process::open(owner) else { return };
        let handshake = Handshake { started: process.started().0, handler };
        match self.engine.set_handshake(owner, handshake) {
            Ok(()) => self.doses().signals.any_answered = true,
            Err(error) => self.warn(format!("process {owner}: it cannot be sent signals: {error}")),
        }
    }

    /// No more signals are sent, and where none is on its way, helpers may give them back.
    pub(super) fn end_signals(&mut self) {
        let (any_answered, ours) = {
            let signals = &self.doses().signals;
            let bit = |signal: &DelaySignal| 1_u64 << (signal.number - 1);
            (signals.any_answered, signals.assigned.iter().fold(0, |ours, signal| ours | bit(signal)))
        };
        if !any_answered {
            return;
        }
        // With the links the programs go, and whoever was in one has left it.
        for covered in self.covered.values_mut() {
            covered.attachments.clear();
        }
        self.leave_stubs();
        for (owner, block) in self.helpers.blocks() {
            if wait_until_clear(owner, ours)
                && let Err(error) = block.signals_are_over()
            {
                tracing::debug!("the helper in process {owner} keeps its signals: {error}");
            }
        }
    }
}

impl Doses {
    /// Has the helpers spin other delays on the session's signals: when none of those signals is on its way,
    /// and none can be sent.
    pub(super) fn reassign_signals(&mut self, assigned: Vec<DelaySignal>) {
        if assigned == self.signals.assigned {
            return;
        }
        let before = std::mem::replace(&mut self.signals.assigned, assigned);
        let changed = |signal: &&DelaySignal| !self.signals.assigned.contains(signal);
        let changed: Vec<u32> = before.iter().filter(changed).map(|signal| signal.number).collect();
        let is_changed = |policy: &Policy| changed.contains(&policy.signal);
        // Calls with these delays are not delayed from here on, until their new doses hold.
        let policy = |(number, _): (u32, Dose)| Some((number, self.switch.policy(number)?));
        let paused: Vec<NumberedPolicy> = self
            .policies
            .numbered()
            .filter_map(policy)
            .filter(|(_, policy)| is_changed(policy))
            .map(|(number, policy)| (number, Policy { delay_ns: 0, signal: 0, ..policy }))
            .collect();
        // The numbers are those of the map.
        let _ = self.switch.set(&paused);
        // A program that has compared the doses before sends its signal within microseconds.
        thread::sleep(LOOK_EVERY);
        let ours = changed.iter().fold(0, |ours, number| ours | 1_u64 << (number - 1));
        let slots = self.signals.for_helpers();
        for (owner, block) in self.blocks() {
            wait_until_clear(owner, ours);
            if let Err(error) = block.set_signals(&slots) {
                tracing::debug!("the helper in process {owner} keeps its delays: {error}");
            }
        }
    }
}

/// Waits until none of these signals is on its way in a process; bit N is signal N + 1. Whether that is so.
fn wait_until_clear(owner: Pid, signals: u64) -> bool {
    let Ok(process) = Process::open(owner) else { return false };
    let is_clear = || signal::masks(&process).is_ok_and(|masks| masks.pending & signals == 0);
    let until = Instant::now() + ON_THEIR_WAY;
    while !is_clear() {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    true
}
