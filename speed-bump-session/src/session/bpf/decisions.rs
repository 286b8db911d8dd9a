//! With `-vv`, logs the decisions of the BPF programs, with the names of the functions.

use crate::{
    engine::bpf::{BpfEngine, decisions::TARGET},
    session::state::State,
};

/// Logs the decisions since the last call. Does nothing without `-vv`.
pub(super) fn tell(engine: &mut BpfEngine, state: &State) {
    let Some(decisions) = engine.decisions() else { return };
    let decided = decisions.take();
    if decided.is_empty() {
        return;
    }
    let doses = state.doses();
    for decision in decided {
        let id = doses.functions.at(decision.function);
        match id.and_then(|id| doses.functions.known().get(id)) {
            Some(function) => tracing::debug!(target: TARGET, "{} {}", function.name, decision.text),
            None => tracing::debug!(target: TARGET, "function {} {}", decision.function, decision.text),
        }
    }
}

/// Logs how many decisions the programs have dropped since the last call. `told` is the number so far.
pub(super) fn tell_missed(engine: &mut BpfEngine, told: &mut u64) {
    let Some(missed) = engine.decisions().and_then(|decisions| decisions.missed().ok()) else {
        return;
    };
    let more = missed.saturating_sub(*told);
    if more > 0 {
        *told = missed;
        tracing::debug!(target: TARGET, "{more} more decisions like these");
    }
}
