//! The reasons why we could not prepare a session.

use super::notice::SelectsNothing;
use crate::{
    calibrate::CalibrateError,
    control::{RequestError, error::Kind},
    engine::{EngineKind, kmod::KmodError},
    failure::FailureKind,
    kernel::{KernelError, PrivilegeError},
    process::ProcessError,
    targets::TargetsError,
    units::Pid,
};

/// Why we could not prepare a session. Nothing was attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// We cannot use the targets.
    #[error(transparent)]
    Targets(#[from] TargetsError),
    /// A process cannot be a target, or we cannot read it.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// We lack privileges.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
    /// The kernel lacks something.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// We could not measure the costs of probes or signals.
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    /// The requested engine needs the helper, which the user forbids.
    #[error("the engine `{0}` needs the helper in the process: let it be loaded, or use the engine `bpf`")]
    WithoutHelper(EngineKind),
    /// The user requests the engine `signal`, which does not work here.
    #[error("the engine `signal` does not work here: {0}; use the engine `bpf`")]
    NoSignals(String),
    /// Targets select nothing, and the request does not allow that.
    #[error("{} of the targets select nothing", .0.len())]
    NothingSelected(Vec<SelectsNothing>),
    /// All targets are Python functions, and no process has Python functions that we can make visible.
    #[error("process {pid}: {why}")]
    NoPython {
        /// PID of one of the processes.
        pid: Pid,
        /// Why that process has no visible Python functions.
        why: String,
        /// What else we know about that process.
        remarks: Vec<String>,
    },
    /// The engine does not support the request. There is a line for each reason.
    #[error("{}", .0.join("; "))]
    Incapable(Vec<String>),
    /// We cannot use the kernel module.
    #[error(transparent)]
    Kmod(#[from] KmodError),
    /// The request names no process.
    #[error("no process: name one with --pid PID")]
    NoProcess,
}

impl PrepareError {
    /// Who can remedy the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Targets(_) | Self::WithoutHelper(_) | Self::Incapable(_) | Self::NoProcess => {
                FailureKind::Usage
            }
            Self::Kmod(error) => error.kind(),
            Self::Process(error) => FailureKind::for_process(error),
            Self::NothingSelected(_) => FailureKind::NothingSelected,
            Self::Privilege(_)
            | Self::Kernel(_)
            | Self::Calibrate(_)
            | Self::NoSignals(_)
            | Self::NoPython { .. } => FailureKind::System,
        }
    }
}

impl From<PrepareError> for RequestError {
    fn from(error: PrepareError) -> Self {
        let kind = error.kind();
        let message = error.to_string();
        match error {
            PrepareError::Targets(error) => error.into(),
            PrepareError::NothingSelected(nothing) => {
                let nothing = nothing.iter().filter_map(|of| serde_json::to_value(of).ok()).collect();
                Self { nothing, ..Self::new(Kind::Failure(kind), message) }
            }
            _ => Self::new(Kind::Failure(kind), message),
        }
    }
}
