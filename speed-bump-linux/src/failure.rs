//! The kind of failure of an error, for programs: exit codes and answers follow from it.

use serde::{Deserialize, Serialize};

use crate::process::{ProcessError, RefusalKind};

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The request cannot be met: wrong targets, or a process that cannot be a target.
    Usage,
    /// A target selects nothing, and the user has not allowed that.
    NothingSelected,
    /// A privilege is missing, or the kernel or the target's build lacks something.
    System,
    /// The process is gone.
    Gone,
    /// A condition of an experiment does not hold.
    Guard,
}

impl FailureKind {
    /// The kind of a process's refusal.
    pub fn for_process(error: &ProcessError) -> Self {
        match error.kind() {
            RefusalKind::Gone => Self::Gone,
            RefusalKind::Unsupported => Self::Usage,
            RefusalKind::Privilege | RefusalKind::System => Self::System,
        }
    }
}
