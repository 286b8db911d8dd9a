//! What changed around the experiment.

use serde::{Deserialize, Serialize};

/// What changed around an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// The share of the time that the machine's processors were busy; `None` if unknown.
    pub processors_busy: Option<f64>,
    /// Processes of the service that did not exist at the beginning.
    pub processes_came: usize,
    /// Processes of the service that did not exist at the end.
    pub processes_went: usize,
    /// Threads that did not exist at the beginning.
    pub threads_came: usize,
    /// Threads that did not exist at the end.
    pub threads_went: usize,
    /// By how much the time of day was set, in ns, including corrections of its rate.
    pub clock_step_ns: i64,
    /// For how long the machine was suspended.
    pub suspended_ns: i64,
}
