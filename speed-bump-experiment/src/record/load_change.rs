//! Times without the usual load.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// A time in which no delay explains the rate of units: zero, far too low, or far too high.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadChange {
    /// When its first slice began (`CLOCK_MONOTONIC`).
    pub start_ns: Nanos,
    /// When the load was back; `None` if it did not come back.
    pub end_ns: Option<Nanos>,
    /// Until when the experiment waited for the load.
    pub waited_until_ns: Nanos,
    /// The rate of units in this time, as a share of the rate before.
    pub rate: f64,
    /// The rate of calls of the functions in this time, as a share of the rate before; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<f64>,
    /// Units that had begun and were not done; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<u64>,
    /// Whether functions were delayed when this time began.
    pub delayed: bool,
}
