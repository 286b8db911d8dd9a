//! Load that was not there.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// A stretch in which units came as no delay explains: not at all, far more seldom, or far more often.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadChange {
    /// When the first slice of it began (`CLOCK_MONOTONIC`).
    pub start_ns: Nanos,
    /// When the load was back; `None` where it did not come back.
    pub end_ns: Option<Nanos>,
    /// Until when it was waited for.
    pub waited_until_ns: Nanos,
    /// How often units came meanwhile, as a share of how often they came before.
    pub rate: f64,
    /// How often the functions were called meanwhile, as a share of how often they were before; `None` where
    /// that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<f64>,
    /// Units that were begun and not done then; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<u64>,
    /// Whether something was delayed as it began.
    pub delayed: bool,
}
