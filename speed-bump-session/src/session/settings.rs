//! What a session does, and how: known before anything is attached.

use std::time::Duration;

use crate::policy::{DelayBound, PolicyTable};

/// What a session does, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The delays that it begins with, and which engine spins them.
    pub policies: PolicyTable,
    /// What each thread is delayed at most; `None`: no bound, now or later.
    pub bound: Option<DelayBound>,
    /// From the attach to the first trigger.
    pub start_after: Duration,
    /// From there to the last trigger; `None` is until it is stopped.
    pub duration: Option<Duration>,
    /// Whether children are covered.
    pub children: bool,
    /// Whether calls are timed from the start.
    pub times: bool,
    /// Whether they may be timed at a later time.
    pub may_time: bool,
    /// Whether it is recorded who calls whom, of Python functions whose calls are timed.
    pub callers: bool,
    /// Whether a target that selects nothing is an error.
    pub strict: bool,
    /// Whether it is not told which targets select nothing.
    pub is_guess: bool,
    /// How long a thread of a Python process may take to come to a point where it can be borrowed.
    pub inject_timeout: Duration,
}
