//! Why nothing came of a sweep.

use std::io;

use super::{options::OptionError, unit::UnitError};
use crate::{
    experiment::{metric::OpenError, subject::SubjectError},
    failure::FailureKind,
    policy::DoseError,
    prepare::PrepareError,
    sampling::SamplingError,
    session::SessionError,
    units::Nanos,
};

/// Why a sweep ended before its first slice. What was measured in slices is never lost by an error: it is in
/// the [`Experiment`](crate::experiment::record::Experiment).
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// It cannot be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// It cannot be attached.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Somebody stopped it.
    #[error("stopped before anything was measured")]
    Stopped,
    /// A guard does not hold to begin with.
    #[error("a guard does not hold before anything was delayed: {0}")]
    GuardBroken(String),
    /// A guard was broken meanwhile.
    #[error("a guard ended the experiment: {0}")]
    Guarded(String),
    /// An option cannot be.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// What is to be counted is not named as it has to be.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// What is to be counted cannot be.
    #[error("{}", of_unit(.unit, .error))]
    Open {
        /// Unit of work, as the command line names it.
        unit: String,
        /// What kept it from being counted.
        error: OpenError,
    },
    /// What is counted could not be read.
    #[error("{unit}: {error}")]
    Metric {
        /// Unit of work, as the command line names it.
        unit: String,
        /// What kept it from being counted.
        error: io::Error,
    },
    /// Nothing was counted.
    #[error(
        "{unit}: no unit of work was done in {seconds} s: is the service under load, and does `list -t \
         PATTERN` show the function? If one takes longer than that, --for has to be some thousand times as \
         long as it takes"
    )]
    NoUnits {
        /// Unit of work, as the command line names it.
        unit: String,
        /// For so long.
        seconds: u64,
    },
    /// A counter became smaller.
    #[error(
        "{unit} jumped back, from {before} to {after}: a counter only grows; one that begins anew, as of a \
         worker that was replaced, is no measure of work, nor is a gauge"
    )]
    JumpedBack {
        /// Unit of work, as the command line names it.
        unit: String,
        /// Units before.
        before: f64,
        /// Units after.
        after: f64,
    },
    /// No function was called.
    #[error("none of the selected functions was called: nothing to experiment on")]
    NotCalled,
    /// Preparation took all of the time.
    #[error(
        "preparation took {took} of the {time} that --for gives, so that too little is left to measure \
         anything: --for {wanted} or more"
    )]
    NoTimeLeft {
        /// Time from the start to the end of preparation.
        took: Nanos,
        /// All of the time.
        time: Nanos,
        /// What would do.
        wanted: Nanos,
    },
    /// The time, or what is asked for, leaves no room for an experiment.
    #[error("{0}")]
    NoRoom(String),
    /// Sampling saw no function to experiment on, and why.
    #[error("{0}")]
    NothingSampled(String),
    /// Sampling missed too much to rank what it saw.
    #[error("{0}")]
    Blind(String),
    /// All functions that take time are called too often.
    #[error(
        "the functions that take time are called so often that even to count their calls would slow the \
         service down too much: name some with --target PATTERN"
    )]
    TooOften,
    /// The processes cannot be sampled.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// Doses cannot be set.
    #[error(transparent)]
    Dose(#[from] DoseError),
    /// The session ended, or could not be asked.
    #[error(transparent)]
    Subject(SubjectError),
    /// Preparation panicked.
    #[error("preparation ended in the midst: this is a bug")]
    Panicked,
    /// The system has no thread, or a counter could not be read.
    #[error("{what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// What kept it from being counted.
        error: io::Error,
    },
}

fn of_unit(unit: &str, error: &OpenError) -> String {
    match error {
        OpenError::Command(error) => format!("{unit}: {error}"),
        OpenError::Requests(_) | OpenError::NoSocket => error.to_string(),
    }
}

impl SweepError {
    /// What ended it before the first slice. This is what counts units.
    pub(super) fn before_slices(error: SubjectError, unit: &str) -> Self {
        match error {
            SubjectError::Stopped => Self::Stopped,
            SubjectError::Metric(error) => Self::Metric { unit: unit.to_owned(), error },
            error => Self::Subject(error),
        }
    }

    /// Why something could not be done, for the error that the system gives.
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Prepare(error) => error.kind(),
            Self::Session(error) => error.kind(),
            Self::GuardBroken(_) | Self::Guarded(_) => FailureKind::Guard,
            Self::Stopped
            | Self::Option(_)
            | Self::Unit(_)
            | Self::Open { error: OpenError::Command(_) | OpenError::NoSocket, .. }
            | Self::Metric { .. }
            | Self::NoUnits { .. }
            | Self::JumpedBack { .. }
            | Self::NotCalled
            | Self::NoTimeLeft { .. }
            | Self::NoRoom(_)
            | Self::NothingSampled(_)
            | Self::TooOften
            | Self::Dose(_) => FailureKind::Usage,
            Self::Open { error: OpenError::Requests(_), .. }
            | Self::Blind(_)
            | Self::Sampling(_)
            | Self::Subject(_)
            | Self::Panicked
            | Self::System { .. } => FailureKind::System,
        }
    }
}
