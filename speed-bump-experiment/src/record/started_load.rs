//! The load that a sweep starts itself.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// The command that makes the load (`--load`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedLoad {
    /// The command, for `/bin/sh`.
    pub command: String,
    /// When it was started again, each time after it had ended with success (`CLOCK_MONOTONIC`).
    pub started_again_ns: Vec<Nanos>,
}
