//! The report as JSON: to a file that is whole or not there, to what else is at a path, or to standard
//! output.

mod place;

use std::{
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::PathBuf,
};

use serde::Serialize;

use crate::{printable::printable_json, sys::descriptor};

/// Where the JSON goes.
#[derive(Debug)]
pub enum JsonOutput {
    /// Standard output: `-` on the command line.
    Stdout,
    /// A descriptor that we were started with, by one of its names (`/dev/stdout`, `/dev/fd/63`), which is a
    /// symbolic link.
    Descriptor(PathBuf, OwnedFd),
    /// What is at a path when the report is written; mostly a file, or nothing yet.
    Path(PathBuf),
}

/// Why the JSON could not be written.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Writing failed.
    #[error("cannot write the report to {to}: {error}")]
    Write {
        /// The path, or "standard output".
        to: String,
        /// What the system said.
        error: io::Error,
    },
    /// The record could not be expressed.
    #[error("cannot express the report as JSON: {0}")]
    Serialize(serde_json::Error),
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        Self::Serialize(error)
    }
}

impl JsonOutput {
    /// Takes a path as it was given, `-` for standard output, and tries, without leaving anything behind,
    /// whether a report can be written there: better known before an hour's session than after it.
    ///
    /// # Errors
    /// The folder is missing or not writable, or what is there takes no report: a folder, a disk.
    pub fn at(path: PathBuf) -> Result<Self, JsonError> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        let fail = |error| JsonError::Write { to: path.display().to_string(), error };
        if let Some(number) = place::descriptor_named(&path) {
            let descriptor = descriptor::inherited(number).map_err(fail)?;
            place::check_descriptor(&descriptor).map_err(fail)?;
            return Ok(Self::Descriptor(path, descriptor));
        }
        place::check(&path).map_err(fail)?;
        Ok(Self::Path(path))
    }

    /// Writes the report. A file appears whole under its name, by renaming; a symbolic link of that name is
    /// replaced, not followed. Into a device or a FIFO it is written.
    ///
    /// # Errors
    /// The folder is missing or not writable, the disk is full, or nobody reads.
    pub fn write(&self, report: &impl Serialize) -> Result<(), JsonError> {
        let text = text(report)?;
        let (to, written) = match self {
            Self::Stdout => (
                "standard output".to_owned(),
                io::stdout().lock().write_all(printable_json(&text).as_bytes()),
            ),
            Self::Descriptor(path, descriptor) => {
                (path.display().to_string(), place::write_open(descriptor, &text))
            }
            Self::Path(path) => (path.display().to_string(), place::write(path, &text)),
        };
        written.map_err(|error| JsonError::Write { to, error })
    }
}

/// The report as JSON, with a line break at the end.
///
/// # Errors
/// The record could not be expressed.
pub fn text(report: &impl Serialize) -> Result<String, JsonError> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}
