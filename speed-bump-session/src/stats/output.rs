//! The destination of a report: a file that appears completely or not at all, another kind of file, or
//! standard output.

mod place;

use std::{
    borrow::Cow,
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::PathBuf,
};

use crate::{printable::printable_json, sys::descriptor};

/// Where a report goes.
#[derive(Debug)]
pub enum Output {
    /// Standard output: `-` on the command line.
    Stdout,
    /// A descriptor that we have inherited, given by one of its names (`/dev/stdout`, `/dev/fd/63`). These
    /// names are symbolic links.
    Descriptor(PathBuf, OwnedFd),
    /// A path. Mostly it leads to a file, or to nothing yet. We decide which kind it is when we write the
    /// report.
    Path(PathBuf),
}

/// The contents of a report.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// These bytes, unchanged.
    Bytes(&'a [u8]),
    /// JSON. In a file we write exactly this text. Elsewhere a terminal may show the text, so we replace
    /// invisible characters.
    Json(&'a str),
}

/// Why we could not write a report.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the report to {to}: {error}")]
pub struct OutputError {
    /// The path, or "standard output".
    pub to: String,
    /// The system's error.
    pub error: io::Error,
}

impl Output {
    /// Takes a path from the user; `-` is standard output. Checks that we can write a report there, and
    /// leaves nothing behind. So an error comes now, and not after a session of an hour.
    ///
    /// # Errors
    /// The folder is missing or not writable, or the path is unsuitable: a folder or a disk.
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

    /// Writes the report. A file appears completely under its name, because we rename it. We replace a
    /// symbolic link with this name, and do not follow it. We write into a device or a FIFO.
    ///
    /// # Errors
    /// The folder is missing or not writable, the disk is full, or there is no reader.
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
