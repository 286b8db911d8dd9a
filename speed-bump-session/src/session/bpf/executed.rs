//! Processes of the command's tree that execute programs: covered before Python begins, where they are caught
//! at the exec. The command itself is one of them when it is no longer followed.
//!
//! The kernel's announcement of the same exec may come earlier or later than what those who catch it tell.

use std::time::{Duration, Instant};

use super::{BpfSession, SessionError, phase::Covered};
use crate::{
    launch::{
        StoppedProgram,
        execs::{Execs, Executed, Executions},
    },
    units::Pid,
};

/// How long the announcement of an exec may be ahead of whoever tells of it.
const AHEAD: Duration = Duration::from_millis(500);

/// Whoever catches them.
#[derive(Debug)]
pub(crate) struct Catching {
    /// Dropping it ends the catching.
    execs: Execs,
    executions: Option<Executions>,
}

impl BpfSession {
    /// Starts to catch processes at their execs.
    pub(super) fn catch_execs(&mut self) -> Result<(), SessionError> {
        let Some(held) = self.engine.take_held() else { return Ok(()) };
        let (execs, executions) = Execs::start(held).map_err(SessionError::Thread)?;
        self.catching = Some(Catching { execs, executions: Some(executions) });
        Ok(())
    }

    /// Where it is told what was caught; the first caller gets it.
    pub(crate) fn take_executions(&mut self) -> Option<Executions> {
        self.catching.as_mut()?.executions.take()
    }

    /// Says which process is the command.
    pub(super) fn command_is(&self, pid: Pid) {
        if let Some(catching) = &self.catching {
            catching.execs.set_command(pid);
        }
    }

    /// Whether a process is covered with the image that it has now.
    pub(super) fn has_current_image(&self, pid: Pid) -> bool {
        let is_current = |covered: &Covered| covered.image.is_some() && !covered.is_replaced();
        self.processes.is_entering(pid) || self.processes.get(pid).is_some_and(is_current)
    }

    /// Takes up what became of a process that executed a program.
    pub(crate) fn caught(&mut self, executed: Executed) {
        match executed {
            Executed::Runs { pid } => {
                self.processes.exec_is_told(pid);
                self.cover_caught(pid);
            }
            Executed::Late { pid, is_python, why } => {
                self.processes.exec_is_told(pid);
                self.cover_caught(pid);
                if is_python == Some(true) || self.has_helper(pid) {
                    self.context.warn(format!(
                        "process {pid}: the Python that it executes could not be held at its start ({why}); \
                         its calls are seen from some milliseconds later on"
                    ));
                } else if is_python.is_none() {
                    self.context.warn(format!(
                        "process {pid}: what it executed could not be held at its start, and ended before it \
                         was looked at ({why}); if it was a Python, its calls were not seen"
                    ));
                }
            }
            Executed::AtEntry(stopped) => self.cover_at_entry(stopped),
        }
    }

    /// Takes up a program that stands before its first instruction.
    pub(super) fn cover_at_entry(&mut self, stopped: StoppedProgram) {
        let pid = stopped.process.pid();
        self.processes.exec_is_told(pid);
        self.let_go_of_image(pid);
        let covered = self.cover_stopped(stopped);
        self.covered_or_warn(pid, covered);
    }

    fn cover_caught(&mut self, pid: Pid) {
        if self.context.is_root(pid) { self.cover_anew(pid) } else { self.cover_executed(pid) }
    }

    /// Covers processes whose exec was announced, and which nobody has told of.
    pub(super) fn look_for_untold(&mut self) {
        let Some(before) = Instant::now().checked_sub(AHEAD) else { return };
        for pid in self.processes.untold(before) {
            self.processes.exec_is_told(pid);
            self.cover_caught(pid);
        }
    }

    /// What could not be covered is told of, unless it has ended.
    pub(super) fn covered_or_warn(&mut self, pid: Pid, covered: Result<(), SessionError>) {
        match covered {
            Ok(()) => {}
            Err(error) if self.is_gone(pid) => tracing::debug!("process {pid} ended: {error}"),
            Err(error) => self.context.warn(format!("process {pid} is not covered: {error}")),
        }
    }
}
