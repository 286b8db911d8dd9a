//! A reading of a metric.

use crate::latencies::LatencyCounts;

/// The counts so far. They grow from reading to reading, except the number of units in progress and the
/// integral of a gauge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Units of work that were done.
    pub units: f64,
    /// The total latency of these units, in ns; `None` if not measured.
    pub latency: Option<f64>,
    /// How long no unit was in progress, in ns, minus the time of units that were in progress beside another
    /// one; `None` if unknown.
    pub idle: Option<f64>,
    /// Number of units by latency; `None` if unknown.
    pub latencies: Option<LatencyCounts>,
    /// Units that failed, of those that were done; `None` if unknown.
    pub failed: Option<f64>,
    /// Units in progress: begun and not done; `None` if unknown.
    pub under_way: Option<u64>,
    /// For a gauge, which counts no units: the integral of its value over time, in ns.
    pub level: Option<f64>,
}
