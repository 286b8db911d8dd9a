//! Holds programs at their entry point until the helper is loaded, so that the helper sees Python from its
//! first call on.

use speed_bump_abi::control_block::HelperCommand;

use super::{
    context::Context,
    coverage::Coverage,
    helpers::Helpers,
    phase::{Entering, EnteringWay},
};
use crate::{
    launch::{Coming, Held, StoppedProgram},
    presence::{Presence, PresenceError},
    probe::plan::Plan,
    process::Process,
    python::helper::Room,
    session::{error::SessionError, functions::FunctionRange},
    units::Pid,
};

/// Begins to load the helper into a program that we hold at its entry point. The session covers the program
/// afterwards.
///
/// # Errors
/// There is no room for the program's functions.
pub(super) fn enter(
    stopped: StoppedProgram,
    process: Process,
    plan: Plan,
    rooms: &[Room],
    coverage: &mut Coverage,
) -> Result<(), SessionError> {
    let (range, room) = coverage.context.reserve(rooms)?;
    let pid = process.pid();
    let way = EnteringWay::Waits(stopped, room);
    coverage.processes.enter(pid, Entering { process, plan, range, way });
    poll(pid, coverage);
    Ok(())
}

/// Checks on the helper that we are loading into this program, and covers the program when the helper is in.
pub(super) fn poll(pid: Pid, coverage: &mut Coverage) {
    let helpers = &coverage.engines.helpers;
    let Some(Entering { process, plan, range, way }) = coverage.processes.take_entering(pid) else { return };
    let way = match way {
        EnteringWay::Waits(..) if helpers.given_up.has(pid) => Ok(way),
        EnteringWay::Waits(stopped, room) => {
            begin(stopped, room, plan.wants_helper(), helpers).map(EnteringWay::Comes).map_err(Err)
        }
        EnteringWay::Comes(coming) => match coming.outcome() {
            Some(came) => Err(came),
            None => Ok(EnteringWay::Comes(coming)),
        },
    };
    match way {
        Ok(way) => coverage.processes.enter(pid, Entering { process, plan, range, way }),
        Err(came) => {
            let entered = entered(process, &plan, range, came, coverage);
            covered_or_warn(pid, entered, &mut coverage.context);
        }
    }
}

fn begin(
    stopped: StoppedProgram,
    room: Room,
    for_python: bool,
    helpers: &Helpers,
) -> Result<Coming, PresenceError> {
    let gone = || PresenceError::Gone { pid: stopped.process.pid() };
    let setup = helpers.setup().ok_or_else(gone)?.clone();
    let first = if for_python { HelperCommand::RunFromStart } else { HelperCommand::HandleSignals };
    stopped.bring_in(setup, room, first, helpers.wake())
}

/// Covers a program after the helper was loaded or has failed to load, and lets the program go on.
fn entered(
    process: Process,
    plan: &Plan,
    range: FunctionRange,
    came: Result<(Presence, Held), PresenceError>,
    coverage: &mut Coverage,
) -> Result<(), SessionError> {
    let pid = process.pid();
    match came {
        Ok((presence, held)) => {
            let id = coverage.engines.take_in(presence, range, &mut coverage.context);
            coverage.cover_or_warn(process, plan, Some(id))?;
            coverage.open_window_of(pid);
            drop(held);
        }
        Err(error) => {
            coverage.context.give_back(range);
            coverage.cover_or_warn(process, plan, None)?;
            coverage.open_window_of(pid);
            if plan.wants_helper() {
                coverage.context.warn(format!(
                    "process {pid}: the helper could not be loaded before Python began: {error}; it is \
                     loaded as soon as possible, and calls until then are not seen"
                ));
                coverage.join_later(pid);
            } else {
                coverage.context.warn(format!(
                    "process {pid}: {error}; its calls are not delayed, but counted as missed"
                ));
            }
        }
    }
    Ok(())
}

/// Warns if the session could not cover a process, unless the process has ended.
pub(super) fn covered_or_warn(pid: Pid, covered: Result<(), SessionError>, context: &mut Context) {
    let is_gone = || !Process::open(pid).is_ok_and(|process| process.is_alive());
    match covered {
        Ok(()) => {}
        Err(error) if is_gone() => tracing::debug!("process {pid} ended: {error}"),
        Err(error) => context.warn(format!("process {pid} is not covered: {error}")),
    }
}
