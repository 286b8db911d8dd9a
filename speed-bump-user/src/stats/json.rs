//! The report as JSON, to a file that is whole or not there, or to standard output.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::report::SessionReport;

/// Where the JSON goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonOutput {
    /// Standard output: `-` on the command line.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// Why the JSON could not be written.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Writing failed.
    #[error("cannot write the report to {to}: {error}")]
    Write {
        /// The file, or "standard output".
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

impl From<PathBuf> for JsonOutput {
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" { Self::Stdout } else { Self::File(path) }
    }
}

impl JsonOutput {
    /// Tries, without leaving anything behind, whether a report can be written: better known before an
    /// hour's session than after it.
    ///
    /// # Errors
    /// The folder is missing, not writable, or the path names one.
    pub fn check(&self) -> Result<(), JsonError> {
        let Self::File(path) = self else { return Ok(()) };
        let fail = |error| JsonError::Write { to: path.display().to_string(), error };
        if path.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        tempfile::Builder::new().prefix(".speed-bump-").tempfile_in(folder(path)).map_err(fail)?;
        Ok(())
    }

    /// Writes the report. A file appears whole under its name, by renaming; a symbolic link of that name
    /// is replaced, not followed.
    ///
    /// # Errors
    /// The folder is missing or not writable, the disk is full, or the reader of standard output is gone.
    pub fn write(&self, report: &SessionReport) -> Result<(), JsonError> {
        let mut text = serde_json::to_vec_pretty(report)?;
        text.push(b'\n');
        match self {
            Self::Stdout => io::stdout()
                .lock()
                .write_all(&text)
                .map_err(|error| JsonError::Write { to: "standard output".into(), error }),
            Self::File(path) => write_whole(path, &text)
                .map_err(|error| JsonError::Write { to: path.display().to_string(), error }),
        }
    }
}

fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut file = tempfile::Builder::new()
        .prefix(".speed-bump-")
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(folder(path))?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
