//! Why a session ended.

use std::fmt;

use serde::Serialize;

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The window of `--duration` closed.
    Elapsed,
    /// Something asked the session to stop.
    Stopped,
    /// Every process that was named on the command line ended.
    TargetGone,
    /// The last process named on the command line executed another program.
    TargetReplaced,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elapsed => "the window closed",
            Self::Stopped => "it was stopped",
            Self::TargetGone => "the target ended",
            Self::TargetReplaced => "the target executed another program",
        })
    }
}
