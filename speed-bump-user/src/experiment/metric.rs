//! What counts the work of a service: units that were done, how long they took, and whether there was any.

pub mod calls;
mod exposition;
pub mod prometheus;
pub mod requests;
pub mod sockets;

use std::{fmt, io};

use crate::session::snapshot::Snapshot;

/// See above. All numbers grow from reading to reading.
pub trait Metric: fmt::Debug {
    /// What was counted so far. `snapshot` was just taken of the session.
    ///
    /// # Errors
    /// The source does not answer.
    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading>;
}

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Units of work that were done.
    pub units: f64,
    /// The times that those took from their beginnings to their ends, in all, in ns; `None` where that is not
    /// measured.
    pub latency: Option<f64>,
    /// For how long no unit was under way, in ns, less for how long more than one was; `None` where that is
    /// not known.
    pub idle: Option<f64>,
}
