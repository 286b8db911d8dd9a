//! The command that a session was started for.

use crate::{launch::DetachRequest, units::Pid};

/// The command.
#[derive(Debug)]
pub(super) struct StartedCommand {
    pid: Pid,
    /// Makes its tracer let it go.
    detach: DetachRequest,
    /// Whether its tracer reports its execs.
    is_followed: bool,
    /// Whether the window was opened: its first program runs, or is about to.
    has_begun: bool,
}

impl StartedCommand {
    /// A command whose tracer reports its execs.
    pub(super) fn new(pid: Pid, detach: DetachRequest) -> Self {
        Self { pid, detach, is_followed: true, has_begun: false }
    }

    /// Its process.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether its tracer reports its execs.
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// From here on its execs are no longer reported.
    pub(super) fn not_followed(&mut self) {
        self.is_followed = false;
    }

    /// Makes the tracer let it go, as the helper is to be loaded into a running program.
    pub(super) fn stop_following(&self) {
        self.detach.request();
    }

    /// Its first program runs, or is about to. Returns whether this is the first time.
    pub(super) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }
}
