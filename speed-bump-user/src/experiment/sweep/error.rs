//! Errors of a sweep before its first slice.

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

/// Why a sweep ended before its first slice. An error never loses measured slices: they are in the
/// [`Experiment`](crate::experiment::record::Experiment).
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The preparation failed.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The session failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The user stopped it.
    #[error("stopped before anything was measured")]
    Stopped,
    /// A guard does not hold at the beginning.
    #[error("a guard does not hold before the first delay: {0}")]
    GuardBroken(String),
    /// A guard failed during the preparation.
    #[error("a guard ended the experiment: {0}")]
    Guarded(String),
    /// An option is not valid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A unit or metric is not valid.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A metric cannot count.
    #[error("{}", cannot_count(.unit, .error))]
    Open {
        /// Unit of work, as the command line names it.
        unit: String,
        /// What kept it from being counted.
        error: OpenError,
    },
    /// A metric could not be read.
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
        /// How long nothing was counted.
        seconds: u64,
    },
    /// A counter became smaller.
    #[error(
        "{unit} jumped back, from {before} to {after}: a counter only grows. One that starts again, as \
         when a worker is replaced, does not measure work, and neither does a gauge"
    )]
    JumpedBack {
        /// Unit of work, as the command line names it.
        unit: String,
        /// Units before.
        before: f64,
        /// Units after.
        after: f64,
    },
    /// The load could not be started, or ended, with the reason.
    #[error("{0}")]
    Load(String),
    /// The load makes no work.
    #[error(
        "{unit}: no unit of work was done within {waited} after the load was started: `{command}` still \
         runs. Does it ask this service? --wait-load gives it more time"
    )]
    LoadWithoutUnits {
        /// Unit of work, as the command line names it.
        unit: String,
        /// The command that makes the load.
        command: String,
        /// How long nothing was counted.
        waited: Nanos,
    },
    /// No function was called.
    #[error("none of the selected functions was called: nothing to experiment on")]
    NotCalled,
    /// Preparation took too much of the time.
    #[error(
        "preparation took {took} of the {time} that --for gives, so that too little is left to measure \
         anything: --for {wanted} or more"
    )]
    NoTimeLeft {
        /// How long it took.
        took: Nanos,
        /// The whole time.
        time: Nanos,
        /// The time that would be enough.
        wanted: Nanos,
    },
    /// The time or the options leave no room for an experiment.
    #[error("{0}")]
    NoRoom(String),
    /// Sampling found no function to experiment on, with the reason.
    #[error("{0}")]
    NothingSampled(String),
    /// Sampling missed too much to rank functions.
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
    /// The session ended, or could not be read.
    #[error(transparent)]
    Subject(SubjectError),
    /// Preparation panicked.
    #[error("the preparation panicked: this is a bug")]
    Panicked,
    /// A thread could not start, or a counter could not be read.
    #[error("{what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// What kept it from being counted.
        error: io::Error,
    },
}

fn cannot_count(unit: &str, error: &OpenError) -> String {
    match error {
        OpenError::Command(error) => format!("{unit}: {error}"),
        OpenError::Requests(_) | OpenError::NoSocket => error.to_string(),
    }
}

impl SweepError {
    /// The error for an end before the first slice. `unit` is the metric of units.
    pub(super) fn before_slices(error: SubjectError, unit: &str) -> Self {
        match error {
            SubjectError::Stopped => Self::Stopped,
            SubjectError::Metric(error) => Self::Metric { unit: unit.to_owned(), error },
            error => Self::Subject(error),
        }
    }

    /// Makes an error that says what failed from the system's error.
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    /// The kind of failure.
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
            | Self::Load(_)
            | Self::LoadWithoutUnits { .. }
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
