//! Tells what the BPF programs decided, with the functions' names: log lines of `-vv`.

use super::BpfSession;
use crate::engine::bpf::decisions::TARGET;

impl BpfSession {
    /// Logs the decisions since the last call; nothing without `-vv`.
    pub(super) fn tell_decisions(&mut self) {
        let Some(decisions) = self.engine.decisions() else { return };
        let decided = decisions.take();
        if decided.is_empty() {
            return;
        }
        let doses = self.context.state.doses();
        for decision in decided {
            let id = doses.functions.at(decision.function);
            match id.and_then(|id| doses.functions.known().get(id)) {
                Some(function) => tracing::debug!(target: TARGET, "{} {}", function.name, decision.text),
                None => tracing::debug!(target: TARGET, "function {} {}", decision.function, decision.text),
            }
        }
    }

    /// Says how many of them were left out since the last call.
    pub(super) fn tell_missed_decisions(&mut self) {
        let Some(missed) = self.engine.decisions().and_then(|decisions| decisions.missed().ok()) else {
            return;
        };
        let more = missed.saturating_sub(self.looked.missed);
        if more > 0 {
            self.looked.missed = missed;
            tracing::debug!(target: TARGET, "{more} more decisions like these");
        }
    }
}
