//! What a function shares with units of work.

use serde::{Deserialize, Serialize};

use crate::units::Pid;

/// Where a function runs, and what it shares with units of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// Threads in which it was seen; at most 64.
    pub threads: Vec<Pid>,
    /// What they share with the threads that do units; `None` if these are unknown.
    pub with_units: Option<InCommon>,
}

/// What a function's threads share with the threads that do units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InCommon {
    /// How many of the function's threads do units themselves.
    pub threads: usize,
    /// Whether other threads execute Python code under the same GIL.
    pub gil: bool,
    /// Number of futexes on which both a thread of the function and another thread, which does units, waited.
    /// Futexes of the interpreter do not count.
    pub futexes: usize,
    /// The share of time in which threads that do units waited for a processor, of the time in which they
    /// wanted one; `None` if unknown.
    pub processor_wait: Option<f64>,
}
