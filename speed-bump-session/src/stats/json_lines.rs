//! The report as lines of JSON, which we write at intervals during a session.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::OFlags;

use super::{json::JsonError, output::OutputError, report::SessionReport};
use crate::printable::printable_json;

/// The interval between two lines.
const EVERY: Duration = Duration::from_secs(1);

/// Where the lines go. If the file exists, we append lines to it.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    /// `None`: standard output.
    file: Option<File>,
    due: Instant,
}

impl JsonLines {
    /// Opens a path; `-` is standard output. Does not follow a symbolic link: in a folder like /tmp any user
    /// may have put it there.
    ///
    /// # Errors
    /// We cannot write to the path, or it is a FIFO without a reader.
    pub fn at(path: &Path) -> Result<Self, JsonError> {
        let file = (path.as_os_str() != "-").then(|| open(path)).transpose();
        let file = file.map_err(|error| failed(path, error))?;
        Ok(Self { path: path.to_owned(), file, due: Instant::now() + EVERY })
    }

    /// Writes a line if one is due.
    ///
    /// # Errors
    /// We cannot write the line.
    pub fn tick(&mut self, report: impl FnOnce() -> Option<SessionReport>) -> Result<(), JsonError> {
        let now = Instant::now();
        if now < self.due {
            return Ok(());
        }
        // If we missed lines, we do not write them later.
        self.due = (self.due + EVERY).max(now);
        report().map_or(Ok(()), |report| self.write(&report))
    }

    /// Writes a line.
    ///
    /// # Errors
    /// We cannot write the line.
    pub fn write(&mut self, report: &SessionReport) -> Result<(), JsonError> {
        let line = printable_json(&serde_json::to_string(report)?) + "\n";
        let written = match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()),
            None => {
                let mut output = io::stdout().lock();
                output.write_all(line.as_bytes()).and_then(|()| output.flush())
            }
        };
        written.map_err(|error| failed(&self.path, error))
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().append(true).create(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn failed(path: &Path, error: io::Error) -> JsonError {
    let to = if path.as_os_str() == "-" { "standard output".to_owned() } else { path.display().to_string() };
    OutputError { to, error }.into()
}
