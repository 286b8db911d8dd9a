//! Where a report goes: to a file that is whole or not there, to what else is at a path, or to standard
//! output.

mod place;

use std::{
    borrow::Cow,
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::PathBuf,
};

use crate::{printable::printable_json, sys::descriptor};

/// Where a report is written: a file, or an open descriptor.
#[derive(Debug)]
pub enum Output {
    /// Standard output: `-` on the command line.
    Stdout,
    /// A descriptor that we were started with, by one of its names (`/dev/stdout`, `/dev/fd/63`), which is a
    /// symbolic link.
    Descriptor(PathBuf, OwnedFd),
    /// What is at a path when the report is written; mostly a file, or nothing yet.
    Path(PathBuf),
}

/// What is written.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// This, as it is.
    Bytes(&'a [u8]),
    /// JSON: exact in a file, and elsewhere, where a terminal may show it, with everything in it visible.
    Json(&'a str),
}

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the report to {to}: {error}")]
pub struct OutputError {
    /// The path, or "standard output".
    pub to: String,
    /// What the system said.
    pub error: io::Error,
}

impl Output {
    /// Takes a path as it was given, `-` for standard output, and tries, without leaving anything behind,
    /// whether a report can be written there: better known before an hour's session than after it.
    ///
    /// # Errors
    /// The folder is missing or not writable, or what is there takes no report: a folder, a disk.
    pub fn at(path: PathBuf) -> Result<Self, OutputError> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        let fail = |error| OutputError { to: path.display().to_string(), error };
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
    pub fn write(&self, content: Content<'_>) -> Result<(), OutputError> {
        let (to, written) = match self {
            Self::Stdout => {
                let mut output = io::stdout().lock();
                let written = output.write_all(&content.shown()).and_then(|()| output.flush());
                ("standard output".to_owned(), written)
            }
            Self::Descriptor(path, descriptor) => {
                (path.display().to_string(), place::write_open(descriptor, content))
            }
            Self::Path(path) => (path.display().to_string(), place::write(path, content)),
        };
        written.map_err(|error| OutputError { to, error })
    }
}

impl Content<'_> {
    fn exact(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Json(text) => text.as_bytes(),
        }
    }

    fn shown(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Json(text) => Cow::Owned(printable_json(text).into_bytes()),
        }
    }
}
