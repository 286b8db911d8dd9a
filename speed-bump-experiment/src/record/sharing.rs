//! What a function has in common with units of work.

use serde::{Deserialize, Serialize};

use crate::units::Pid;

/// Where a function runs, and what of that units of work depend on too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// Threads that it was seen in; 64 at most.
    pub threads: Vec<Pid>,
    /// What they have in common with the threads that do units; `None` where those are not known.
    pub with_units: Option<InCommon>,
}

/// What threads have in common with those that do units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InCommon {
    /// How many of them do units themselves.
    pub threads: usize,
    /// Whether others execute Python code under the same GIL.
    pub gil: bool,
    /// How many futexes, other than the interpreter's own, were seen to be waited on by one of them and by
    /// another thread that does units.
    pub futexes: usize,
    /// Of the time in which threads that do units wanted a processor, the share in which they had none;
    /// `None` where that is not known.
    pub processor_wait: Option<f64>,
}
