//! The subject of an experiment, a live or simulated service: it takes doses and returns counts.

use std::{error::Error, io};

use crate::{latencies::LatencyCounts, reading::Reading, units::Nanos};

/// The subject of an experiment.
pub trait Subject {
    /// Gives these candidates these delays, and all others none. All delays take effect together.
    ///
    /// Every call that begins at the returned time or later has them (`CLOCK_MONOTONIC`).
    ///
    /// # Errors
    /// The old doses stay in effect.
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError>;

    /// Bounds what each thread is delayed, whatever the doses are: to this share of the time, 1 at most,
    /// within windows of this length. Does nothing where that is impossible.
    ///
    /// # Errors
    /// The former bound stays.
    fn bound(&mut self, _share: f64, _window: Nanos) -> Result<(), SubjectError> {
        Ok(())
    }

    /// The counts so far.
    ///
    /// # Errors
    /// They cannot be read.
    fn sample(&mut self) -> Result<Sample, SubjectError>;

    /// The readings of further metrics, each with its time.
    ///
    /// # Errors
    /// They cannot be read.
    fn further(&mut self) -> Result<Vec<(Nanos, Option<Reading>)>, SubjectError> {
        Ok(Vec::new())
    }

    /// Starts a run of the benchmark, for experiments whose slices are such runs.
    ///
    /// # Errors
    /// It cannot be started, or there is no benchmark.
    fn begin_run(&mut self) -> Result<(), SubjectError> {
        Err(SubjectError::Metric(io::Error::other("there is no benchmark")))
    }

    /// The run that was started, if it has ended.
    ///
    /// # Errors
    /// It failed.
    fn finished_run(&mut self) -> Result<Option<Run>, SubjectError> {
        Ok(None)
    }

    /// When the load was last started again, if the experiment's own command makes it and has ended.
    fn load_started_again(&self) -> Option<Nanos> {
        None
    }

    /// Waits until this time.
    ///
    /// # Errors
    /// Waiting longer makes no sense.
    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError>;

    /// The time now.
    fn now(&self) -> Nanos;
}

/// The counts at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time.
    pub at: Nanos,
    /// Units of work that were done.
    pub units: f64,
    /// The total latency of these units, in ns; `None` if not measured.
    pub latency: Option<f64>,
    /// How long no unit was in progress, in ns; `None` if unknown.
    pub idle: Option<f64>,
    /// Number of units by latency; `None` if unknown.
    pub latencies: Option<LatencyCounts>,
    /// Units that failed, of those that were done; `None` if unknown.
    pub failed: Option<f64>,
    /// Units in progress: begun and not done; `None` if unknown.
    pub under_way: Option<u64>,
    /// Counts by candidate.
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
    /// The time of these units as the benchmark reports it, in ns; `None` if the time of the run counts.
    pub latency: Option<f64>,
}

/// Counts of one candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Its calls.
    pub calls: u64,
    /// The total requested delay.
    pub asked: Nanos,
    /// The total delivered delay.
    pub delivered: Nanos,
    /// Calls that the bound on their thread left without their delay.
    pub bounded: u64,
    /// Calls that were to be delayed and could not be.
    pub missed: u64,
}

/// Why an experiment cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// The user stopped it.
    #[error("it was stopped")]
    Stopped,
    /// The session is over.
    #[error("the session is over: {0}")]
    Over(String),
    /// Doses could not be set, or the session's counters not be read.
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
