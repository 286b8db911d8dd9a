//! The kind of a failure, for programs. The kind decides exit codes and answers.

use serde::{Deserialize, Serialize};

use crate::process::{ProcessError, RefusalKind};

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// We cannot do what the user asked: wrong targets, or a process that cannot be a target.
    Usage,
    /// A target selects nothing, and the user has not allowed that.
    NothingSelected,
    /// We lack a privilege, or the kernel or the target's build lacks something.
    System,
    /// The process is gone.
    Gone,
    /// A condition of an experiment does not hold.
    Guard,
}

impl FailureKind {
    /// The kind of failure for an error with a process.
    pub fn for_process(error: &ProcessError) -> Self {
        match error.kind() {
            RefusalKind::Gone => Self::Gone,
            RefusalKind::Unsupported => Self::Usage,
            RefusalKind::Privilege | RefusalKind::System => Self::System,
        }
    }
}
