//! What kind of failure an error is, for programs: exit codes and answers follow from it.

use serde::{Deserialize, Serialize};

use crate::process::{ProcessError, RefusalKind};

/// Kind of a failure, by which the command chooses its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// What was asked for cannot be: wrong targets, or a process that cannot be a target.
    Usage,
    /// A target selects nothing, which was not accepted.
    NothingSelected,
    /// A privilege is missing, or the kernel or the target's build lacks something.
    System,
    /// The process is gone.
    Gone,
    /// A condition that an experiment is bound to does not hold.
    Guard,
}

impl FailureKind {
    /// That of a process's refusal.
    pub fn of(error: &ProcessError) -> Self {
        match error.kind() {
            RefusalKind::Gone => Self::Gone,
            RefusalKind::Unfit => Self::Usage,
            RefusalKind::Privilege | RefusalKind::System => Self::System,
        }
    }
}
