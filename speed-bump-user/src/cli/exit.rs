//! Exit codes, and which failure gets which.

use std::process::ExitCode;

use anyhow::anyhow;

use super::{terminal::Lines, words::selects_nothing};
use crate::{
    failure::FailureKind, prepare::PrepareError, process::ProcessError, session::SessionError,
    targets::TargetsError,
};

/// A code of the table in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(u8);

/// Wrong flags, wrong targets file, or a process that cannot be a target.
pub const USAGE: Code = Code(2);
/// Under `--strict`: a target selects nothing.
pub const NOTHING_MATCHED: Code = Code(3);
/// A missing privilege, a kernel that lacks something, or a target whose calls cannot be seen.
pub const SYSTEM: Code = Code(4);
/// The process was gone before anything was attached.
pub const TARGET_GONE: Code = Code(5);

/// `sweep`: a guard ended it.
pub const GUARDED: Code = Code(6);

/// `sweep`: the sweep ended because its measurements are not valid: the load went away, or the metric does
/// not measure work.
pub const NOT_VALID: Code = Code(8);

/// `report`: a condition of `--fail-if` holds.
pub const CONDITION: Code = Code(7);

/// `run`: the command cannot be executed; as of env(1).
pub const NOT_EXECUTABLE: Code = Code(126);
/// `run`: there is no such command; as of env(1).
pub const NOT_FOUND: Code = Code(127);

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

/// A command that did not succeed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// The message.
    pub error: anyhow::Error,
}

impl Failure {
    /// A failure with this code.
    pub fn new(code: Code, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into() }
    }

    /// Prints the error on standard error: in one line, unless it is [`Lines`].
    pub fn tell(&self) {
        let lines = self.error.downcast_ref::<Lines>().cloned();
        lines.unwrap_or_else(|| format!("{:#}", self.error).into()).after("speed-bump-ebpf: error: ").tell();
    }
}

impl From<PrepareError> for Failure {
    fn from(error: PrepareError) -> Self {
        let code = error.kind().into();
        match error {
            PrepareError::Targets(TargetsError::Lines(errors)) => {
                Self::new(code, Lines::from_iter(errors.lines()))
            }
            PrepareError::WithoutHelper(engine) => Self::new(
                code,
                anyhow!(
                    "--engine {engine} needs the helper in the process: leave out --no-inject, or use \
                     --engine bpf"
                ),
            ),
            PrepareError::Incapable(lines) => Self::new(code, Lines::from_iter(lines)),
            PrepareError::NothingSelected(nothing) => {
                let mut all = Lines::default();
                all.extend(nothing.iter().map(selects_nothing));
                Self::new(code, all)
            }
            PrepareError::NoPython { ref remarks, .. } => {
                let mut lines = Lines::from(error.to_string());
                remarks.iter().for_each(|remark| lines.push(format!("  {remark}")));
                Self::new(code, lines)
            }
            error => Self::new(code, error),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let code = error.kind().into();
        match error {
            SessionError::NothingSelected(lines) => Self::new(code, Lines::from_iter(lines)),
            error => Self::new(code, error),
        }
    }
}

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Self {
        Self::new(FailureKind::for_process(&error).into(), error)
    }
}

impl From<FailureKind> for Code {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Usage => USAGE,
            FailureKind::NothingSelected => NOTHING_MATCHED,
            FailureKind::System => SYSTEM,
            FailureKind::Gone => TARGET_GONE,
            FailureKind::Guard => GUARDED,
        }
    }
}
