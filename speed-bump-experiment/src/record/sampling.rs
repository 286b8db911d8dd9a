//! Results of sampling, which chooses functions if none are named.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// What sampling saw of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// Samples in which it was the innermost function.
    pub own: u64,
    /// How long its threads had a processor in these samples.
    pub running_ns: Nanos,
    /// Threads in which it was seen; at most 64.
    pub threads: usize,
    /// Processes of these threads.
    pub processes: usize,
    /// Why it is not in the experiment.
    pub left_out: Option<String>,
}

/// The sampling that chose the functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// How often stacks were read.
    pub ticks: u64,
    /// How often per second.
    pub rate: f64,
    /// Threads that were seen.
    pub threads: usize,
    /// Stacks of Python functions that were read.
    pub samples: u64,
    /// Stacks that were dropped because they changed while they were read.
    pub dropped: u64,
    /// Ticks of the processors' clock, which show native functions: 100 a second for each busy processor;
    /// `None` without such a clock.
    pub clock_samples: Option<u64>,
    /// Ticks outside of candidates, by the kind of code.
    pub elsewhere: BTreeMap<String, u64>,
    /// Number of functions that take too little time for an experiment.
    pub dismissed: usize,
    /// Their time, as a share of all samples.
    pub dismissed_share: f64,
    /// The cost of sampling, as a share of one processor.
    pub cost: f64,
    /// Time per unit during sampling, in ns; `None` if unknown.
    pub time_per_unit_ns: Option<f64>,
    /// How much longer units took than without sampling, as a share.
    pub slowdown: Option<f64>,
    /// The unit, if sampling chose it.
    pub unit: Option<String>,
    /// What could not be sampled, and why.
    pub remarks: Vec<String>,
}
