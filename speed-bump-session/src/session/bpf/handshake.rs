//! Decides which delays helpers spin and which processes get signals, and stops the signals at the end.

use std::{collections::BTreeSet, sync::Arc};

use speed_bump_abi::Handshake;

use super::{context::Context, signals::SessionSignals};
use crate::{
    engine::{
        EngineChoice,
        bpf::BpfEngine,
        signal::{self, DelaySignal, wait_until_clear},
    },
    probe::{plan::Plan, resolve::Resolver},
    process::Process,
    python::helper::{Block, block::SignalAnswer},
    session::{error::SessionError, settings::Settings},
    units::{Nanos, Pid},
};

/// Chooses a signal for each delay that helpers spin; `None` if helpers cannot spin on signals. Warns of
/// delays that cannot use SIGURG.
pub(super) fn choose_signals(
    resolver: &Resolver,
    settings: &Settings,
    roots: &[(Process, Plan)],
) -> Result<Option<(SessionSignals, Vec<String>)>, SessionError> {
    let policies = &settings.policies;
    let (choice, form) = (policies.choice(), resolver.form());
    let or_spin = choice == EngineChoice::Auto && form.longest_spin().is_none();
    let Some(cost) = resolver.signal() else { return Ok(None) };
    let delays = policies.signalled(form);
    // If a process has ended, we report that later.
    let masks = roots.iter().filter_map(|(process, _)| signal::masks(process).ok());
    let used = masks.fold(0, |used, masks| used | masks.used());
    let assigned: Vec<DelaySignal> = if or_spin {
        signal::choose_harmless(&delays, used).into_iter().collect()
    } else {
        signal::choose(&delays, used).map_err(|error| SessionError::Signal(error.to_string()))?
    };
    // If we will load no helper, the kernel spins, and the signals do not matter. For a command that has not
    // started, we do not know.
    let helper_may_come = roots.is_empty() || !or_spin || roots.iter().any(|(_, plan)| plan.wants_helper());
    let limits = if helper_may_come { limits(&assigned, &delays) } else { Vec::new() };
    limits.iter().for_each(|limit| tracing::warn!("{limit}"));
    Ok(Some((SessionSignals::new(choice, form, or_spin, assigned, cost), limits)))
}

fn limits(assigned: &[DelaySignal], delays: &BTreeSet<Nanos>) -> Vec<String> {
    let mut limits = Vec::new();
    let list = |delays: &mut dyn Iterator<Item = Nanos>| {
        delays.map(|delay| delay.to_string()).collect::<Vec<_>>().join(", ")
    };
    let deadly = list(&mut assigned.iter().filter(|signal| signal.is_deadly()).map(|signal| signal.delay));
    if !deadly.is_empty() {
        limits.push(format!(
            "delays of {deadly} use real-time signals, which kill a process that removes their handler at \
             the wrong moment. SIGURG cannot. To use it alone, have one long delay in a session, and none in \
             processes that use SIGURG themselves"
        ));
    }
    let has = |delay: &Nanos| assigned.iter().any(|signal| signal.delay == *delay);
    let spun = list(&mut delays.iter().copied().filter(|delay| !has(delay)));
    if !spun.is_empty() {
        limits.push(format!(
            "delays of {spun} hold up the processors that they are spun on, as the helper has a signal for \
             one long delay only. Use one long delay in a session, or `--engine signal`"
        ));
    }
    limits
}

/// Allows signals to a process whose helper is loaded and handles them.
pub(super) fn allow_signals(
    signals: &SessionSignals,
    owner: Pid,
    block: &Arc<Block>,
    engine: &mut BpfEngine,
    context: &mut Context,
) {
    if !signals.add_block(owner, block) {
        return;
    }
    let SignalAnswer { handler, taken } = match block.signal_answer() {
        Ok(Some(answer)) => answer,
        Ok(None) => return context.warn(format!("process {owner}: its helper handles no signals")),
        Err(error) => {
            return context.warn(format!("process {owner}: its helper's signals are not known: {error}"));
        }
    };
    for number in taken {
        context.warn(format!(
            "process {owner}: it uses signal {number} itself, which stands for a delay here; calls with that \
             delay are not delayed there, but counted as missed"
        ));
    }
    let Ok(process) = Process::open(owner) else { return };
    let handshake = Handshake { started: process.started().0, handler };
    match engine.set_handshake(owner, handshake) {
        Ok(()) => signals.has_answered(),
        Err(error) => context.warn(format!("process {owner}: it cannot be sent signals: {error}")),
    }
}

/// Stops sending signals. When no signal is pending in a process, the process's helper may restore the
/// handlers.
pub(super) fn end_signals(sent: u64, blocks: &[(Pid, Arc<Block>)]) {
    for (owner, block) in blocks {
        if wait_until_clear(*owner, sent)
            && let Err(error) = block.signals_are_over()
        {
            tracing::debug!("the helper in process {owner} keeps its signals: {error}");
        }
    }
}
