//! The command that a session was started for.

use crate::{launch::DetachRequest, units::Pid};

/// The command.
#[derive(Debug)]
pub(super) struct StartedCommand {
    pid: Pid,
    /// Has it followed no more.
    detach: DetachRequest,
    /// Whether its execs are told.
    is_followed: bool,
    /// Whether the window was opened: its first program runs, or is about to.
    has_begun: bool,
}

impl StartedCommand {
    /// One whose tracer tells of its execs.
    pub(super) fn new(pid: Pid, detach: DetachRequest) -> Self {
        Self { pid, detach, is_followed: true, has_begun: false }
    }

    /// Its process.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether its tracer tells of its execs.
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Its execs are told no more.
    pub(super) fn not_followed(&mut self) {
        self.is_followed = false;
    }

    /// The helper is to be brought into a program that runs: its tracer must let it go.
    pub(super) fn stop_following(&self) {
        self.detach.request();
    }

    /// Its first program runs, or is about to. Whether that is new.
    pub(super) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }
}
