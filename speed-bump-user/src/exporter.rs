//! Live counters of a session or a sweep for Prometheus.
//!
//! The exporter serves them at an address, updated every half second, and writes them to a file for
//! node_exporter's textfile collector every two seconds.

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

/// How often the numbers are updated.
const EVERY: Duration = Duration::from_millis(500);
/// How often the file is written.
const FILE_EVERY: Duration = Duration::from_secs(2);

/// The numbers to export.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// Counters of the session; `None` before it starts and after it ends.
    pub session: Option<SessionReport>,
    /// Progress of the sweep; `None` for a session without one.
    pub sweep: Option<SweepNumbers>,
}

/// Progress of a sweep.
#[derive(Clone, Debug, Default)]
pub(crate) struct SweepNumbers {
    /// The phase; `None` before the first and after the last.
    pub phase: Option<PhaseKind>,
    /// How long the phase may still take.
    pub left: Option<Duration>,
    /// Slices that count.
    pub slices: u64,
    /// Slices that do not.
    pub dropped: u64,
    /// How much longer a unit of the last slice took than one without delays, as a share.
    pub slowdown: Option<f64>,
    /// Delays so far, by function.
    pub delivered: Vec<Delivered>,
    /// Number of guards.
    pub guards: usize,
    /// Whether a guard failed.
    pub guard_broken: bool,
}

/// The delays of one function in all slices so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Its name.
    pub function: String,
    /// Path of the file that it lies in.
    pub file: String,
    /// The line of its definition; empty if unknown.
    pub line: String,
    /// Its calls, while it was delayed.
    pub calls: u64,
    /// The sum of its delays.
    pub delay: Nanos,
}

/// Why numbers could not be exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExporterError {
    /// The address cannot be listened at.
    #[error("cannot serve numbers at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
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
    /// Starts to export these numbers.
    ///
    /// # Errors
    /// The address is in use or not an address of this machine, or the file cannot be written.
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

    /// The address where the numbers are served, with the port that was chosen if 0 was given.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Updates the numbers, if it is time to.
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

    /// Updates the numbers at once.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn put_now(&mut self, numbers: &Numbers) -> Result<(), ExporterError> {
        self.put(numbers, true)
    }

    /// Stops writing the file.
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
