//! What the BPF programs tell the loader through the ring buffer.

use crate::PythonKey;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A tracked process forked: `pid` is the child, `detail` is 1 when it shares its parent's memory
    /// (`vfork`, `posix_spawn`) and is no process of its own before it execs.
    Fork = 1,
    /// A tracked process replaced its image: `pid`.
    Exec = 2,
    /// A Python code location was met for the first time: `detail` is its index, `pid` the process. The
    /// record is a [`PythonCodeEvent`].
    PythonCode = 3,
}

impl EventKind {
    /// The kind with this number, if there is one.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Fork),
            2 => Some(Self::Exec),
            3 => Some(Self::PythonCode),
            _ => None,
        }
    }
}

/// One record of [`EVENTS`](crate::maps::EVENTS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// An [`EventKind`] by number.
    pub kind: u32,
    /// Thread-group id as the initial PID namespace numbers it; for `PythonCode` the session's process index.
    pub pid: u32,
    /// Depends on the kind.
    pub detail: u32,
    /// Thread-group id of the parent, for `Fork`.
    pub parent: u32,
}

/// The record of [`EventKind::PythonCode`]: an [`Event`] followed by the location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PythonCodeEvent {
    /// What every record begins with.
    pub event: Event,
    /// The code location.
    pub key: PythonKey,
}
