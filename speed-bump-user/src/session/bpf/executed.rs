//! Processes of the command's tree that execute programs: covered before Python begins, where they are caught
//! at the exec. The command itself is one of them when it is no longer followed.
//!
//! The kernel's announcement of the same exec may come earlier or later than what those who catch it tell.

use std::time::Instant;

use super::{BpfSession, SessionError, command::AHEAD};
use crate::{
    launch::execs::{Execs, Executed, Executions},
    units::Pid,
};

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

    /// Whether the announced exec of a process is left to whoever catches it.
    pub(super) fn is_caught(&mut self, pid: Pid) -> bool {
        if self.catching.is_none() || self.is_followed(pid) {
            return false;
        }
        if !self.has_current_image(pid) {
            self.untold.entry(pid).or_insert_with(Instant::now);
        }
        true
    }

    /// Whether a process is covered with the image that it has now.
    pub(super) fn has_current_image(&self, pid: Pid) -> bool {
        self.covered.get(&pid).is_some_and(|covered| covered.image.is_some() && !covered.is_replaced())
    }

    /// Takes up what became of a process that executed a program.
    pub(crate) fn caught(&mut self, executed: Executed) {
        match executed {
            Executed::Runs { pid } => {
                self.is_told(pid);
                self.cover_caught(pid);
            }
            Executed::Late { pid, is_python, why } => {
                self.is_told(pid);
                self.cover_caught(pid);
                if is_python == Some(true) || self.has_helper(pid) {
                    self.warn(format!(
                        "process {pid}: the Python that it executes could not be held at its start ({why}); \
                         its calls are seen from some milliseconds later on"
                    ));
                } else if is_python.is_none() {
                    self.warn(format!(
                        "process {pid}: what it executed could not be held at its start, and ended before it \
                         was looked at ({why}); if it was a Python, its calls were not seen"
                    ));
                }
            }
            Executed::AtEntry(standing) => {
                let pid = standing.process.pid();
                self.is_told(pid);
                self.join_no_more(pid);
                self.let_go_of_image(pid);
                match self.cover_standing(standing) {
                    Ok(held) => drop(held),
                    Err(error) if self.is_gone(pid) => tracing::debug!("process {pid} ended: {error}"),
                    Err(error) => self.warn(format!("process {pid} is not covered: {error}")),
                }
            }
        }
    }

    fn is_told(&mut self, pid: Pid) {
        self.untold.remove(&pid);
        self.command_is_told(pid);
    }

    fn cover_caught(&mut self, pid: Pid) {
        if self.state.roots.contains(&pid) { self.cover_anew(pid) } else { self.cover_executed(pid) }
    }

    /// Covers processes whose exec was announced and is not told.
    pub(super) fn look_for_uncaught(&mut self) {
        if self.untold.is_empty() {
            return;
        }
        let is_late = |since: &Instant| since.elapsed() >= AHEAD;
        let late: Vec<Pid> =
            self.untold.iter().filter(|(_, since)| is_late(since)).map(|(pid, _)| *pid).collect();
        for pid in late {
            self.untold.remove(&pid);
            self.cover_caught(pid);
        }
    }
}
