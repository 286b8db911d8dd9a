//! What a metric has counted so far.

use crate::latencies::LatencyCounts;

/// What was counted so far. All numbers but the level's, and what is under way, grow from reading to reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Units of work that were done.
    pub units: f64,
    /// The times that those took from their beginnings to their ends, in all, in ns; `None` where that is not
    /// measured.
    pub latency: Option<f64>,
    /// For how long no unit was under way, in ns, less for how long more than one was; `None` where that is
    /// not known.
    pub idle: Option<f64>,
    /// How many units had which latency; `None` where that is not known.
    pub latencies: Option<LatencyCounts>,
    /// Units that failed, of those that were done; `None` where that is not known.
    pub failed: Option<f64>,
    /// How many units are begun and not done; `None` where that is not known.
    pub under_way: Option<u64>,
    /// Of a gauge, which counts no units: the integral of its value over the time, in ns.
    pub level: Option<f64>,
}
