//! What an experiment is done on: doses go in, counts come out. A live service ([`live`](super::live)), or
//! one that is simulated.

use std::io;

use crate::{session::SessionError, units::Nanos};

/// See above.
pub trait Subject {
    /// Gives these candidates these delays, and all others none. All come into force together.
    ///
    /// Returns the time from which on every call that begins has them (`CLOCK_MONOTONIC`).
    ///
    /// # Errors
    /// The old doses hold then.
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError>;

    /// What was counted so far.
    ///
    /// # Errors
    /// It is not known.
    fn sample(&mut self) -> Result<Sample, SubjectError>;

    /// Waits until this time.
    ///
    /// # Errors
    /// There is no sense in waiting any longer.
    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError>;

    /// The time now.
    fn now(&self) -> Nanos;
}

/// What was counted up to a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Nanos,
    /// Units of work that were done.
    pub units: f64,
    /// The times that those took from their beginnings to their ends, in all, in ns; `None` where that is not
    /// measured.
    pub latency: Option<f64>,
    /// For how long no unit was under way, in ns; `None` where that is not known.
    pub idle: Option<f64>,
    /// By candidate.
    pub counts: Vec<Counts>,
}

/// What was counted of one candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Its calls.
    pub calls: u64,
    /// What those were to be delayed, in all.
    pub asked: Nanos,
    /// What they were delayed, in all.
    pub delivered: Nanos,
}

/// Why an experiment cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// Somebody stopped it.
    #[error("it was stopped")]
    Stopped,
    /// The session is over.
    #[error("the session is over: {0}")]
    Over(String),
    /// Doses could not be set, or counters not be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Counters could not be read.
    #[error("cannot read the counters: {0}")]
    Counters(io::Error),
}

impl From<io::Error> for SubjectError {
    fn from(error: io::Error) -> Self {
        Self::Counters(error)
    }
}
