//! The command that a session has started.

use crate::{launch::DetachRequest, units::Pid};

/// The command.
#[derive(Debug)]
pub(super) struct StartedCommand {
    pid: Pid,
    /// Asks the tracer to detach from the command.
    detach: DetachRequest,
    /// Whether the tracer reports the command's execs.
    is_followed: bool,
    /// Whether the first program runs or is about to run, and so the [window](super::window) is open.
    has_begun: bool,
}

impl StartedCommand {
    /// A command whose tracer reports its execs.
    pub(super) fn new(pid: Pid, detach: DetachRequest) -> Self {
        Self { pid, detach, is_followed: true, has_begun: false }
    }

    /// The PID of the command.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the tracer reports the command's execs.
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// From now on, nobody reports the command's execs.
    pub(super) fn not_followed(&mut self) {
        self.is_followed = false;
    }

    /// Asks the tracer to detach, because we will load the helper into a running program.
    pub(super) fn stop_following(&self) {
        self.detach.request();
    }

    /// The first program runs, or is about to run. Returns whether this is the first call.
    pub(super) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }
}
