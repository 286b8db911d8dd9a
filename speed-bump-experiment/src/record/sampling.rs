//! What sampling saw, where nobody named functions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// What sampling saw of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// Samples in which it was the innermost function.
    pub own: u64,
    /// For how long its threads had a processor then.
    pub running_ns: Nanos,
    /// Threads that it was seen in; 64 at most.
    pub threads: usize,
    /// Processes that those are of.
    pub processes: usize,
    /// Why it is not in the experiment all the same.
    pub left_out: Option<String>,
}

/// The sampling that chose the functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// How often stacks were looked at.
    pub ticks: u64,
    /// In a second.
    pub rate: f64,
    /// Threads that were seen.
    pub threads: usize,
    /// Stacks of Python functions that were read.
    pub samples: u64,
    /// Those that made no sense: they were changed meanwhile.
    pub dropped: u64,
    /// Ticks of the processors' clock that show native functions, 100 a second for each processor that is
    /// busy; `None` where there is no such clock.
    pub clock_samples: Option<u64>,
    /// Those of them that are no candidate's, by what was executed.
    pub elsewhere: BTreeMap<String, u64>,
    /// Functions that were seen, and take too little time to be worth an experiment.
    pub dismissed: usize,
    /// What those took, as a share of all samples.
    pub dismissed_share: f64,
    /// What the sampling itself took of one processor, as a share.
    pub cost: f64,
    /// Time per unit meanwhile, in ns; `None` where that is not known.
    pub time_per_unit_ns: Option<f64>,
    /// By what share units took longer than without it.
    pub slowdown: Option<f64>,
    /// The unit, where sampling chose that too.
    pub unit: Option<String>,
    /// What could not be seen, and why.
    pub remarks: Vec<String>,
}
