//! Writes reports as JSON.

use std::io;

use serde::Serialize;

use super::output::{Content, Output, OutputError};

/// Why we did not write a report as JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// We could not write the report.
    #[error(transparent)]
    Write(#[from] OutputError),
    /// We could not convert the report to JSON.
    #[error("cannot express the report as JSON: {0}")]
    Serialize(serde_json::Error),
}

impl JsonError {
    /// Whether we could not write the report because its reader is gone.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Write(OutputError { error, .. }) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        Self::Serialize(error)
    }
}

/// Writes a report as JSON.
///
/// # Errors
/// We could not convert or write the report.
pub fn write(report: &impl Serialize, to: &Output) -> Result<(), JsonError> {
    Ok(to.write(Content::Json(&text(report)?))?)
}

/// A report as JSON, with a line break at the end.
///
/// # Errors
/// We could not convert the report to JSON.
pub fn text(report: &impl Serialize) -> Result<String, JsonError> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}
