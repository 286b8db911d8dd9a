//! Notices: what the user is told before anything is attached.

use serde::Serialize;

use crate::{
    targets::NoTarget,
    units::{Nanos, Pid},
};

/// Something that the user should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum Notice {
    /// There are no targets, which the request allows.
    NoTarget(NoTarget),
    /// The helper was loaded into a process to list its functions, and was unloaded.
    Looked {
        /// PID of the process.
        pid: Pid,
        /// How many functions it listed.
        functions: u64,
    },
    /// A message of the helper about what it found there.
    Seen {
        /// PID of the process.
        pid: Pid,
        /// The message.
        text: &'static str,
    },
    /// The helper could not be loaded to list functions.
    NotLooked {
        /// PID of the process.
        pid: Pid,
        /// Why, and the way out.
        why: String,
    },
    /// Another session slows down the same process: a call that both delay waits for both.
    OtherSession {
        /// PID of the process.
        pid: Pid,
        /// The process of the tool that runs that session.
        session: Pid,
    },
    /// What a killed tool had left in the kernel module was removed, or could not be.
    Recovered {
        /// Sentence about what was removed, or could not be.
        text: String,
    },
    /// The kernel module is upstream's.
    UpstreamModule,
    /// Listed only: an attach would fail.
    AttachWouldFail {
        /// Why, and the way out.
        why: String,
    },
    /// A target selects nothing.
    SelectsNothing(SelectsNothing),
    /// A delay is below what can be delivered.
    BelowFloor {
        /// The target's line.
        line: usize,
        /// Delay that the line asks for.
        delay: Nanos,
        /// The least that a trigger takes at its costliest probe site.
        floor: Nanos,
    },
    /// A delay is exact where calls follow each other closely, and below what can be delivered after a sleep.
    BelowColdFloor {
        /// The target's line.
        line: usize,
        /// Delay that the line asks for.
        delay: Nanos,
        /// The least that a trigger takes at its costliest probe site when it finds the caches cold.
        floor: Nanos,
    },
    /// A delay is spun in the kernel and is long enough to hold up others.
    LongInKernel {
        /// The target's line.
        line: usize,
        /// Delay that the line asks for.
        delay: Nanos,
    },
    /// Calls that are not timed, although timing is requested.
    NotTimed {
        /// Sentence: which calls, and why.
        text: String,
    },
}

/// A target that selects nothing, and why in each process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelectsNothing {
    /// The target's line.
    pub line: usize,
    /// Target as the line has it.
    pub target: String,
    /// What each process has that explains it, if anything.
    pub processes: Vec<(Pid, Vec<Reason>)>,
}

/// Why a target selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// What resolving the target found.
    Found(String),
    /// The target on this line selects it already.
    SelectedBy(usize),
    /// The pattern matches no file that the process maps.
    NoFile {
        /// The module's pattern.
        pattern: String,
    },
    /// The process runs code that it has compiled itself, which targets cannot name.
    Jit,
    /// No function that is loaded is such a caller; those with the closest names, if any.
    NoCaller {
        /// What follows `caller=`.
        pattern: String,
        /// Names as a line writes them.
        nearest: Vec<String>,
    },
    /// There is no such name; these are the closest.
    Nearest(Vec<String>),
}
