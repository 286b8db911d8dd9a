//! What the service waits for.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A function in which threads that do units waited. No change of code can save that time, so reports list it
/// without a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Its qualified name. If a function of the service itself called the function that waited, it is the
    /// service's function, with all that this calls.
    pub name: String,
    /// Its file, as the process sees it.
    pub file: PathBuf,
    /// The line of its definition, if known.
    pub line: Option<u32>,
    /// The function that waited, if the function `name` calls it and did not wait itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// What it waited in: a system call, in words.
    pub what: String,
    /// The share of the time of all threads that do units. If one thread does a whole unit, this is the share
    /// of a unit's time.
    pub share: f64,
}
