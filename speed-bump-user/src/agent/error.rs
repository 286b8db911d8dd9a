//! Errors as answers.

use std::io;

use serde::Serialize;

use crate::{
    failure::FailureKind,
    prepare::{PrepareError, notice::SelectsNothing},
    session::SessionError,
    targets::TargetsError,
};

/// What kind of error it is, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The line is no request.
    Request,
    /// Not in this state: no session, or one too many.
    State,
    /// As exit codes have it.
    #[serde(untagged)]
    Failure(FailureKind),
}

/// An error, as answers have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AgentError {
    pub(super) kind: Kind,
    /// The thing, the cause and the way out.
    pub(super) message: String,
    /// Targets that select nothing, where that is the error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) nothing: Vec<SelectsNothing>,
}

impl AgentError {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), nothing: Vec::new() }
    }

    pub(super) fn request(message: impl Into<String>) -> Self {
        Self::new(Kind::Request, message)
    }

    pub(super) fn failure(kind: FailureKind, message: String) -> Self {
        Self::new(Kind::Failure(kind), message)
    }

    pub(super) fn state(message: &str) -> Self {
        Self::new(Kind::State, message)
    }
}

impl From<PrepareError> for AgentError {
    fn from(error: PrepareError) -> Self {
        let message = match &error {
            PrepareError::Targets(TargetsError::Lines(errors)) => errors.lines().join("\n"),
            error => error.to_string(),
        };
        let kind = Kind::Failure(error.kind());
        let nothing = match error {
            PrepareError::NothingSelected(nothing) => nothing,
            _ => Vec::new(),
        };
        Self { kind, message, nothing }
    }
}

impl From<SessionError> for AgentError {
    fn from(error: SessionError) -> Self {
        Self::new(Kind::Failure(error.kind()), error.to_string())
    }
}

impl From<io::Error> for AgentError {
    fn from(error: io::Error) -> Self {
        Self::new(Kind::Failure(FailureKind::System), format!("cannot read the counters: {error}"))
    }
}
