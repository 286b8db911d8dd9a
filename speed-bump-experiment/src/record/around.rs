//! What changed around the experiment.

use serde::{Deserialize, Serialize};

use crate::units::Pid;

/// What changed around an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// The share of the time that the machine's processors were busy; `None` if unknown.
    pub processors_busy: Option<f64>,
    /// The share of the machine's processors that processes other than the service used; `None` if unknown.
    #[serde(default)]
    pub others: Option<f64>,
    /// The share of time in which the service's threads waited for a processor, of the time in which they
    /// wanted one; `None` if unknown.
    #[serde(default)]
    pub processor_wait: Option<f64>,
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

/// How busy a thread of the service was during the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadTime {
    /// The thread.
    pub thread: Pid,
    /// Its name, as it calls itself (`comm`).
    pub name: String,
    /// The share of the time that it had a processor.
    pub running: f64,
    /// The share of the time that it was ready to run, but had none.
    pub waiting: f64,
}

impl ThreadTime {
    /// The share of the time that it had work to do.
    pub fn busy(&self) -> f64 {
        self.running + self.waiting
    }
}
