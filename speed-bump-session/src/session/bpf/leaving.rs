//! The end of a session: its last reports, and the order of detaching.

use std::time::Instant;

use super::{
    coverage::Coverage, jitted::tell_jitted, nearest::name_nearest, nothing_counted::explain_nothing,
    polling::wait_for_entering,
};
use crate::{
    process::{Process, Program},
    units::Nanos,
};

/// Stops all delays. Reports how long the processes waited. If the session counted nothing, also reports
/// possible causes.
pub(super) fn close(Coverage { context, processes, engines }: &mut Coverage) {
    context.state.ended = Some(Instant::now());
    engines.window.close();
    let Some(waiting) = engines.window.take_waiting() else { return };
    let now = waiting.later(processes.iter().map(|(_, covered)| &covered.process));
    context.state.waited = Some(now.since(&waiting));
    let report = context.state.report(&engines.pending_calls());
    tell_jitted(&report, processes, context);
    explain_nothing(now.ran_since(&waiting), &report, processes, context);
}

/// Detaches from everything. Helpers leave first, while probes go on counting. Then this removes the links.
/// Returns messages about targets that have selected nothing, with the closest names.
pub(super) fn leave(coverage: &mut Coverage) -> Vec<String> {
    let began = Instant::now();
    for pid in coverage.processes.entering() {
        wait_for_entering(pid, coverage);
    }
    let Coverage { context, processes, engines } = coverage;
    engines.helpers.end_signals(processes);
    engines.helpers.send_away(processes, context);
    let mut with_helper: Option<(Process, Program)> = None;
    for covered in processes.take() {
        let pid = covered.process.pid();
        engines.untrack(pid);
        let program = covered.helper.id().and_then(|id| engines.helpers.program(id));
        if let Some(program) = program.filter(|_| context.is_root(pid)) {
            with_helper.get_or_insert((covered.process, program));
        }
    }
    engines.helpers.leave_stubs();
    tracing::info!("detached in {}", Nanos::from(began.elapsed()));
    let may_look = processes.command.is_none() && context.state.stop.times() < 2;
    match (with_helper.filter(|_| may_look), engines.helpers.setup()) {
        (Some((process, program)), Some(setup)) => name_nearest(&process, &program, setup, context),
        _ => Vec::new(),
    }
}
