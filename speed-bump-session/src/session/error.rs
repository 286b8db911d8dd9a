//! The reasons why a session could not start or go on.

use std::io;

use aya::maps::MapError;
use speed_bump_experiment::subject::SubjectError;

use crate::{
    causes::with_causes,
    engine::{SetError, bpf::EngineError, kmod::KmodError},
    failure::FailureKind,
    policy::DoseError,
    probe::{attach::AttachError, in_place::NotInPlace},
    process::ProcessError,
    units::Pid,
};

/// Why a session could not begin, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// We could not load the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// We could not attach to a process.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A process could not be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// We could not write a map.
    #[error("cannot set a BPF map: {}", with_causes(.0))]
    Map(MapError),
    /// The session cannot cover Python functions.
    #[error("{0}")]
    Python(String),
    /// The session cannot use the engine `signal`.
    #[error("{0}")]
    Signal(String),
    /// A target selects nothing, because no path leads to a file that the process runs.
    #[error("line {line}: `{target}`: {why}")]
    OutOfReach {
        /// Number of the target's line, from 1.
        line: usize,
        /// The target as its line gives it.
        target: String,
        /// The file, the reason, and the way out.
        why: String,
    },
    /// We attached probes, but their breakpoints are not in the process.
    #[error(transparent)]
    NotInPlace(#[from] NotInPlace),
    /// The kernel is too old for what a line of the targets file, or a flag, needs.
    #[error("line {line}: {lack}")]
    OldKernel {
        /// Number of the line in the targets file, from 1.
        line: usize,
        /// The reason, and the way out.
        lack: String,
    },
    /// The engine does not support a dose.
    #[error(transparent)]
    Set(#[from] SetError),
    /// The kernel module refuses or fails.
    #[error(transparent)]
    Kmod(#[from] KmodError),
    /// A request needs probes, and the session has none.
    #[error(
        "this needs probes, and the session began without BPF, for functions that the helper delays: use \
         `--engine auto`"
    )]
    WithoutProbes,
    /// The session began without a bound, so nobody can set one now.
    #[error(
        "this session began without a bound on the delays of a thread: attach again, with a bound in the \
         request"
    )]
    Unbounded,
    /// A dose cannot be set.
    #[error(transparent)]
    Dose(#[from] DoseError),
    /// With `strict`: a Python target selects no loaded function.
    #[error("{}", .0.join("; "))]
    NothingSelected(Vec<String>),
    /// Something asked the session to stop before everything was attached.
    #[error("stopped before anything was attached")]
    Stopped,
    /// The operating system lacks a resource.
    #[error("cannot start a thread that renews doses: {0}; raise {limit}", limit = limit_of_threads(.0))]
    Thread(io::Error),
    /// There is no memory for the blocks that we share with helpers.
    #[error("no memory for the doses: {0}")]
    Memory(io::Error),
    /// There is no room for more names of functions.
    #[error("no room for more names of functions; select fewer with the targets file")]
    NamesFull,
    /// The kind of a line depends on a file, and there is no process left that sees it.
    #[error("no process is left to say whether {path} is an ELF file: write py: or native: in front of it")]
    Undecided {
        /// The path at the beginning of the line.
        path: String,
    },
    /// The session cannot change targets in this way while it runs.
    #[error("{0}; attach again")]
    Retarget(String),
    /// The targets have changed, but the session does not cover some of their functions in a process named on
    /// the command line.
    #[error("process {pid}: not all functions of the changed targets are covered: {why}")]
    Uncovered {
        /// PID of the process.
        pid: Pid,
        /// Why the session does not cover the functions.
        why: Box<SessionError>,
    },
    /// The session is over.
    #[error("the session is over")]
    Over,
    /// The session's thread has ended, because of a bug in the tool.
    #[error("the session has ended by a fault in the tool; everything is detached. Please report it")]
    Lost,
    /// There is no room for more functions or sites.
    #[error("no room for more than {capacity} {things}; select fewer with the targets file")]
    Full {
        /// What there is too much of: functions or sites.
        things: &'static str,
        /// The number that there is room for.
        capacity: u32,
    },
}

impl From<SessionError> for SubjectError {
    fn from(error: SessionError) -> Self {
        Self::Session(Box::new(error))
    }
}

impl From<MapError> for SessionError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

impl SessionError {
    /// Who can remedy the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Attach(AttachError::ProcessGone { .. }) => FailureKind::Gone,
            Self::Process(error) => FailureKind::for_process(error),
            Self::Kmod(error) | Self::Set(SetError::Kmod(error)) => error.kind(),
            Self::Full { .. }
            | Self::NamesFull
            | Self::Dose(_)
            | Self::Retarget(_)
            | Self::Undecided { .. }
            | Self::Unbounded
            | Self::Over => FailureKind::Usage,
            Self::NothingSelected(_) => FailureKind::NothingSelected,
            Self::Engine(_)
            | Self::Attach(_)
            | Self::Map(_)
            | Self::OutOfReach { .. }
            | Self::NotInPlace(_)
            | Self::Uncovered { .. }
            | Self::Python(_)
            | Self::Signal(_)
            | Self::OldKernel { .. }
            | Self::Set(_)
            | Self::WithoutProbes
            | Self::Memory(_)
            | Self::Lost
            | Self::Stopped
            | Self::Thread(_) => FailureKind::System,
        }
    }
}

/// The limits that the user may have to raise so that a thread can start.
fn limit_of_threads(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => "`ulimit -n`",
        // If memory for a stack is short, the system gives no special error.
        _ => "`ulimit -u`, or the limits of memory (`ulimit -d`, `ulimit -v`)",
    }
}
