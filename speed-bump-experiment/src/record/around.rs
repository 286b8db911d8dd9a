//! What went on beside the experiment.

use serde::{Deserialize, Serialize};

/// What changed around an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// The share of the time that the machine's processors were busy; `None` where that is not known.
    pub processors_busy: Option<f64>,
    /// Processes of the service that were not there in the beginning.
    pub processes_came: usize,
    /// Processes of the service that were not there in the end.
    pub processes_went: usize,
    /// Their threads, likewise.
    pub threads_came: usize,
    /// See there.
    pub threads_went: usize,
    /// By how much the time of day was set, in ns, with what corrections of its rate came to.
    pub clock_step_ns: i64,
    /// For how long the machine was suspended.
    pub suspended_ns: i64,
}
