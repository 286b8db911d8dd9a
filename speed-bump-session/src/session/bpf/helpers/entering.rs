//! Programs that stand at their entry point until the helper is in, so that it sees Python from its first
//! call on.

use std::thread;

use speed_bump_abi::control_block::HelperCommand;

use super::LOOK_EVERY;
use crate::{
    launch::{Coming, Held, StoppedProgram},
    presence::{Presence, PresenceError},
    probe::plan::Plan,
    process::Process,
    python::helper::Room,
    session::{
        SessionError,
        bpf::{
            BpfSession,
            phase::{Entering, EnteringWay},
        },
        functions::FunctionRange,
    },
    units::Pid,
};

impl BpfSession {
    /// Has the helper be brought into a program at its entry point, and the program be covered then.
    pub(in crate::session::bpf) fn enter(
        &mut self,
        stopped: StoppedProgram,
        process: Process,
        plan: Plan,
        rooms: &[Room],
    ) -> Result<(), SessionError> {
        let (range, room) = self.context.reserve(rooms)?;
        let pid = process.pid();
        self.processes.enter(pid, Entering { process, plan, range, way: EnteringWay::Waits(stopped, room) });
        self.poll_entering(pid);
        Ok(())
    }

    /// Takes up how far the helper has come that is brought into this program.
    pub(super) fn poll_entering(&mut self, pid: Pid) {
        let Some(Entering { process, plan, range, way }) = self.processes.take_entering(pid) else { return };
        let way = match way {
            EnteringWay::Waits(..) if self.helpers.is_giving_up(pid) => Ok(way),
            EnteringWay::Waits(stopped, room) => {
                self.begin_to_enter(stopped, room, plan.wants_helper()).map(EnteringWay::Comes).map_err(Err)
            }
            EnteringWay::Comes(coming) => match coming.outcome() {
                Some(came) => Err(came),
                None => Ok(EnteringWay::Comes(coming)),
            },
        };
        match way {
            Ok(way) => self.processes.enter(pid, Entering { process, plan, range, way }),
            Err(came) => {
                let entered = self.entered(process, &plan, range, came);
                self.covered_or_warn(pid, entered);
            }
        }
    }

    fn begin_to_enter(
        &self,
        stopped: StoppedProgram,
        room: Room,
        for_python: bool,
    ) -> Result<Coming, PresenceError> {
        let gone = || PresenceError::Gone { pid: stopped.process.pid() };
        let setup = self.helpers.setup().ok_or_else(gone)?.clone();
        let first = if for_python { HelperCommand::RunFromStart } else { HelperCommand::HandleSignals };
        stopped.bring_in(setup, room, first, self.sources.waker())
    }

    /// Covers a program into which the helper was brought, or could not be, and lets it go on.
    fn entered(
        &mut self,
        process: Process,
        plan: &Plan,
        range: FunctionRange,
        came: Result<(Presence, Held), PresenceError>,
    ) -> Result<(), SessionError> {
        let pid = process.pid();
        match came {
            Ok((presence, held)) => {
                let id = self.take_in(presence, range);
                self.cover_or_warn(process, plan, Some(id))?;
                self.open_window_of(pid);
                drop(held);
            }
            Err(error) => {
                self.context.give_back(range);
                self.cover_or_warn(process, plan, None)?;
                self.open_window_of(pid);
                if plan.wants_helper() {
                    self.context.warn(format!(
                        "process {pid}: the helper could not be loaded before Python began: {error}; it is \
                         loaded as soon as possible, and calls until then are not seen"
                    ));
                    self.join_later(pid);
                } else {
                    self.context.warn(format!(
                        "process {pid}: {error}; its calls are not delayed, but counted as missed"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Waits until the helper is in this program, or is not to be.
    pub(in crate::session::bpf) fn wait_for_entering(&mut self, pid: Pid) {
        while self.processes.is_entering(pid) {
            self.poll_helpers();
            thread::sleep(LOOK_EVERY);
        }
    }
}
