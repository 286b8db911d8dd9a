//! What an experiment is done on: doses go in, counts come out. A live service, or one that is simulated.

use std::{error::Error, io};

use crate::{latencies::LatencyCounts, reading::Reading, units::Nanos};

/// What an experiment is done on.
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

    /// What further metrics have counted so far, and when each was read.
    ///
    /// # Errors
    /// It is not known.
    fn further(&mut self) -> Result<Vec<(Nanos, Option<Reading>)>, SubjectError> {
        Ok(Vec::new())
    }

    /// Begins a run of the benchmark that slices are runs of.
    ///
    /// # Errors
    /// It cannot be begun, or there is none.
    fn begin_run(&mut self) -> Result<(), SubjectError> {
        Err(SubjectError::Metric(io::Error::other("there is no benchmark")))
    }

    /// The run that was begun, if it has ended.
    ///
    /// # Errors
    /// It failed.
    fn finished_run(&mut self) -> Result<Option<Run>, SubjectError> {
        Ok(None)
    }

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
    /// How many units had which latency; `None` where that is not known.
    pub latencies: Option<LatencyCounts>,
    /// Units that failed, of those that were done; `None` where that is not known.
    pub failed: Option<f64>,
    /// How many units are begun and not done; `None` where that is not known.
    pub under_way: Option<u64>,
    /// By candidate.
    pub counts: Vec<Counts>,
}

/// A run of a benchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// When it began.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
    /// Units of work that it did.
    pub units: f64,
    /// What those took by its own account, in all, in ns; `None` where what it took itself counts.
    pub latency: Option<f64>,
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
    #[error("{0}")]
    Session(Box<dyn Error + Send + Sync>),
    /// A metric could not be read.
    #[error("a metric cannot be read: {0}")]
    Metric(io::Error),
    /// Counters could not be read.
    #[error("cannot read the counters: {0}")]
    Counters(io::Error),
}

impl From<io::Error> for SubjectError {
    fn from(error: io::Error) -> Self {
        Self::Counters(error)
    }
}
