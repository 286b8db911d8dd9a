//! Takes up what becomes of the session's helpers: in turn with everything else, or waiting for some of them.

use std::{thread, time::Instant};

use super::{
    coverage::Coverage,
    entering,
    helpers::LOOK_EVERY,
    joining,
    phase::{Covered, HelperPhase},
};
use crate::units::Pid;

/// Takes up what the helpers say, and those that are on their way.
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

/// Waits until the helper is in this program, or is not to be.
pub(super) fn wait_for_entering(pid: Pid, coverage: &mut Coverage) {
    while coverage.processes.is_entering(pid) {
        poll_helpers(coverage);
        thread::sleep(LOOK_EVERY);
    }
}

/// Waits, for as long as one may take, until the helpers are at work that are on their way into children.
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
