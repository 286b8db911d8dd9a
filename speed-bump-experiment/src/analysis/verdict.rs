//! What is said of a function.

use serde::{Deserialize, Serialize};

/// What is said of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its delay shows, and as far as is known it is worth what is asked for.
    Matters,
    /// It is worth less than what is asked for, or its delay shows less than that. This is shown, and not
    /// only not refuted.
    DoesNotMatter,
    /// Neither is shown.
    Undecided,
    /// It is not worth an experiment: it takes too little time.
    Dismissed,
}
