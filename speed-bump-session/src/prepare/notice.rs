//! What there is to say before anything is attached.

use serde::Serialize;

use crate::{
    targets::NoTarget,
    units::{Nanos, Pid},
};

/// Something that whoever asked should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum Notice {
    /// There are no targets, which was accepted.
    NoTarget(NoTarget),
    /// The helper was loaded into a process for a look at its functions, and has left.
    Looked {
        /// PID of the process.
        pid: Pid,
        /// How many functions it looked at.
        functions: u64,
    },
    /// What the helper has to say of what it saw there.
    Seen {
        /// PID of the process.
        pid: Pid,
        /// The helper's words.
        text: &'static str,
    },
    /// The helper could not be loaded for a look.
    NotLooked {
        /// PID of the process.
        pid: Pid,
        /// Why, and the way out.
        why: String,
    },
    /// Another session is of the same process: a call that both delay waits for both.
    OtherSession {
        /// PID of the process.
        pid: Pid,
        /// The tool's process of that session.
        session: Pid,
    },
    /// What a killed tool had left in the kernel module was taken away, or could not be.
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
    /// Calls that are not timed, though that was asked for.
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
    /// What each process has to do with it, if anything.
    pub processes: Vec<(Pid, Vec<Reason>)>,
}

/// Why a target selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// What resolving found out.
    Found(String),
    /// The target of this line has it already.
    SelectedBy(usize),
    /// No file that the process maps is like the pattern.
    NoFile {
        /// The module's pattern.
        pattern: String,
    },
    /// The process runs code that it has compiled itself, which no target can name.
    Jit,
    /// There is nothing of that name; these come nearest.
    Nearest(Vec<String>),
}
