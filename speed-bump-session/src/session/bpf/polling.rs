//! Checks on the session's helpers: in each turn of the event loop, or while the session waits for some of
//! them.

use std::{thread, time::Instant};

use super::{
    coverage::Coverage,
    entering,
    helpers::LOOK_EVERY,
    joining,
    phase::{Covered, HelperPhase},
};
use crate::units::Pid;

/// Handles the reports of helpers, and checks on helpers that we are loading.
pub(super) fn poll_helpers(coverage: &mut Coverage) {
    coverage.engines.helpers.given_up.poll(&coverage.context);
    for pid in coverage.processes.entering() {
        entering::poll(pid, coverage);
    }
    for pid in coverage.processes.pids_from(Pid::FIRST) {
        if let Err(error) = joining::poll(pid, coverage) {
            coverage.context.warn(format!("process {pid}: its Python functions are not covered: {error}"));
        }
    }
    coverage.engines.helpers.listen(&mut coverage.context);
}

/// Waits until the helper is loaded into this program, or has failed to load.
pub(super) fn wait_for_entering(pid: Pid, coverage: &mut Coverage) {
    while coverage.processes.is_entering(pid) {
        poll_helpers(coverage);
        thread::sleep(LOOK_EVERY);
    }
}

/// Waits until helpers that we are loading into children are active. Each has its own time limit.
pub(super) fn wait_for_joining(coverage: &mut Coverage) {
    let deadline = Instant::now() + coverage.context.settings.inject_timeout;
    while coverage.context.state.stop.times() == 0 && Instant::now() < deadline {
        poll_helpers(coverage);
        let comes = |covered: &Covered| matches!(covered.helper, HelperPhase::Joining(_));
        let any_comes = coverage.processes.iter().any(|(_, covered)| comes(covered));
        if !any_comes && coverage.engines.helpers.have_looked() {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
}
