//! Errors, as answers to requests.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{failure::FailureKind, session::SessionError, targets::TargetsError};

/// The kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The line is not a request.
    Request,
    /// The request is impossible in this state: there is no session, or there is one already.
    State,
    /// A failure of a session. The exit code shows its kind.
    #[serde(untagged)]
    Failure(FailureKind),
}

/// Why we refused a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub(crate) kind: Kind,
    /// The thing, the cause and the way out.
    pub message: String,
    /// The targets that select nothing, if this is the cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nothing: Vec<Value>,
}

impl RequestError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), nothing: Vec::new() }
    }

    /// The error for a line that is not a request.
    pub fn request(message: impl Into<String>) -> Self {
        Self::new(Kind::Request, message)
    }

    /// The error for a request that is impossible in this state.
    pub fn state(message: &str) -> Self {
        Self::new(Kind::State, message)
    }

    /// The error for a failure of this kind.
    pub fn failure(kind: FailureKind, message: String) -> Self {
        Self::new(Kind::Failure(kind), message)
    }

    /// The error for a request that we cannot meet.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Failure(FailureKind::Usage), message)
    }
}

impl From<TargetsError> for RequestError {
    fn from(error: TargetsError) -> Self {
        Self::usage(match &error {
            TargetsError::Lines(errors) => errors.lines().join("\n"),
            error => error.to_string(),
        })
    }
}

impl From<SessionError> for RequestError {
    fn from(error: SessionError) -> Self {
        Self::new(Kind::Failure(error.kind()), error.to_string())
    }
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::new(Kind::Failure(FailureKind::System), format!("cannot read the counters: {error}"))
    }
}
