//! What an experiment compares.

use serde::{Deserialize, Serialize};

/// Which time per unit the experiment compares between slices with and without delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The time of a slice divided by its units, the inverse of throughput.
    #[default]
    Throughput,
    /// The mean time that a unit takes from its beginning to its end.
    Latency,
    /// The time that half of all units take at most.
    P50,
    /// The time that 90 of 100 units take at most.
    P90,
    /// The time that 95 of 100 units take at most.
    P95,
    /// The time that 99 of 100 units take at most.
    P99,
}

impl By {
    /// All quantiles of latency.
    pub const QUANTILES: [Self; 4] = [Self::P50, Self::P90, Self::P95, Self::P99];

    /// The share of all units that take the compared time at most; `None` if no quantile is compared.
    pub fn quantile(self) -> Option<f64> {
        match self {
            Self::Throughput | Self::Latency => None,
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P95 => Some(0.95),
            Self::P99 => Some(0.99),
        }
    }

    /// The whole of which worths are shares, in words.
    pub(crate) fn whole(self) -> &'static str {
        match self {
            Self::Throughput | Self::Latency => "a unit's time",
            Self::P50 => "the p50",
            Self::P90 => "the p90",
            Self::P95 => "the p95",
            Self::P99 => "the p99",
        }
    }

    /// Its name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
        }
    }
}
