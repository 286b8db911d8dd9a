//! The verdict about a function.

use serde::{Deserialize, Serialize};

/// The verdict about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its delay shows, and its estimated worth is at least the one that is asked for.
    Matters,
    /// It is shown that the function is worth less than `--worth`, or that a smaller share of its delay shows
    /// than `--threshold`.
    DoesNotMatter,
    /// Neither is shown.
    Undecided,
    /// It is not worth an experiment: it takes too little time.
    Dismissed,
}
