//! Live numbers for Prometheus: what a session, or a sweep, has counted so far.
//!
//! They are served at an address, made anew each half second, or kept in a file for node_exporter's textfile
//! collector, each two seconds.

pub(crate) mod address;
mod families;
mod serve;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    experiment::record::PhaseKind,
    stats::{
        output::{Content, Output, OutputError},
        report::SessionReport,
    },
    units::Nanos,
};
use serve::Server;

/// How often numbers are made anew.
const EVERY: Duration = Duration::from_millis(500);
/// How often the file is: node_exporter reads it each time that it is asked.
const FILE_EVERY: Duration = Duration::from_secs(2);

/// What there is to export.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// What the session has counted; `None` before the first and after the last.
    pub session: Option<SessionReport>,
    /// How far the sweep is; `None` of a session without one.
    pub sweep: Option<SweepNumbers>,
}

/// How far a sweep is.
#[derive(Clone, Debug, Default)]
pub(crate) struct SweepNumbers {
    /// The phase; `None` before the first and after the last.
    pub phase: Option<PhaseKind>,
    /// When it ends, if all of its time is needed.
    pub left: Option<Duration>,
    /// Slices that count.
    pub slices: u64,
    /// Slices that do not.
    pub dropped: u64,
    /// By what share a unit of the last slice took longer than one without delays.
    pub slowdown: Option<f64>,
    /// What was delayed so far, by function.
    pub delivered: Vec<Delivered>,
    /// Guards that are watched.
    pub guards: usize,
    /// Whether one was broken.
    pub guard_broken: bool,
}

/// What one function was delayed in all slices so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Its name.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line of its definition; empty where there is none.
    pub line: String,
    /// Its calls, while it was delayed.
    pub calls: u64,
    /// The sum of its delays.
    pub delay: Nanos,
}

/// Why nothing is exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExporterError {
    /// The address cannot be listened at.
    #[error("cannot serve numbers at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] OutputError),
}

/// Exports numbers until it is dropped.
#[derive(Debug)]
pub(crate) struct Exporter {
    text: Arc<Mutex<String>>,
    file: Option<Output>,
    server: Option<Server>,
    updated: Option<Instant>,
    written: Option<Instant>,
}

impl Exporter {
    /// Begins, with these numbers.
    ///
    /// # Errors
    /// The address is taken, or none of ours; the file cannot be written.
    pub(crate) fn start(
        address: Option<SocketAddr>,
        file: Option<Output>,
        first: &Numbers,
    ) -> Result<Self, ExporterError> {
        let text = Arc::new(Mutex::new(String::new()));
        let mut exporter = Self { text, file, server: None, updated: None, written: None };
        exporter.put(first, true)?;
        let server = address.map(|address| {
            Server::start(address, Arc::clone(&exporter.text))
                .map_err(|error| ExporterError::Listen { address, error })
        });
        exporter.server = server.transpose()?;
        Ok(exporter)
    }

    /// Where numbers are served: the port is one that is free, where none was asked for.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Takes new numbers, if it is time for some.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn tick(&mut self, numbers: impl FnOnce() -> Numbers) -> Result<(), ExporterError> {
        if self.updated.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        self.updated = Some(Instant::now());
        let is_due = self.written.is_none_or(|at| at.elapsed() >= FILE_EVERY);
        self.put(&numbers(), is_due)
    }

    /// Takes new numbers at once.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn put_now(&mut self, numbers: &Numbers) -> Result<(), ExporterError> {
        self.put(numbers, true)
    }

    /// Writes no file any more.
    pub(crate) fn without_file(&mut self) {
        self.file = None;
    }

    fn put(&mut self, numbers: &Numbers, in_file: bool) -> Result<(), ExporterError> {
        let text = families::text(numbers);
        let written = match &self.file {
            Some(file) if in_file => {
                self.written = Some(Instant::now());
                file.write(Content::Bytes(text.as_bytes()))
            }
            Some(_) | None => Ok(()),
        };
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
        Ok(written?)
    }
}
