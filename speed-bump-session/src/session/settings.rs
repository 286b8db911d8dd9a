//! The settings of a session, which are known before we attach anything.

use std::time::Duration;

use crate::policy::{DelayBound, PolicyTable};

/// What a session does, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The initial delays, and the engine that spins them.
    pub policies: PolicyTable,
    /// The most that each thread is delayed; `None`: no bound, now or later.
    pub bound: Option<DelayBound>,
    /// The time from the attach to the first trigger.
    pub start_after: Duration,
    /// The time from the first trigger to the last one; `None`: until someone stops the session.
    pub duration: Option<Duration>,
    /// Whether the session covers children.
    pub children: bool,
    /// Whether the session times calls from the start.
    pub times: bool,
    /// Whether the session may time calls later.
    pub may_time: bool,
    /// Whether the helper records the callers of Python functions whose calls are timed.
    pub callers: bool,
    /// Whether a target that selects nothing is an error.
    pub strict: bool,
    /// Whether the targets are a guess: then the session does not report which of them select nothing.
    pub is_guess: bool,
    /// How long we wait until a thread of a Python process is at a point where we can borrow it.
    pub inject_timeout: Duration,
}
