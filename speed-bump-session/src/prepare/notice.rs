//! Notices: what we tell the user before we attach anything.

use serde::Serialize;

use crate::{
    targets::NoTarget,
    units::{Nanos, Pid},
};

/// Something that the user should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum Notice {
    /// There are no targets, and the request allows that.
    NoTarget(NoTarget),
    /// We loaded the helper into a process to list its functions, and unloaded it.
    Looked {
        /// PID of the process.
        pid: Pid,
        /// How many functions it listed.
        functions: u64,
    },
    /// A message of the helper about the process.
    Seen {
        /// PID of the process.
        pid: Pid,
        /// The message.
        text: &'static str,
    },
    /// We could not load the helper to list functions.
    NotLooked {
        /// PID of the process.
        pid: Pid,
        /// Why, and the way out.
        why: String,
    },
    /// Another session delays the same process: if both sessions delay a call, it takes both delays.
    OtherSession {
        /// PID of the process.
        pid: Pid,
        /// The process of the tool that runs that session.
        session: Pid,
    },
    /// A killed tool had left targets in the kernel module. We removed them, or could not remove them.
    Recovered {
        /// Sentence about what we removed or could not remove.
        text: String,
    },
    /// The kernel module is upstream's.
    UpstreamModule,
    /// We can list the targets, but an attach would fail.
    AttachWouldFail {
        /// Why, and the way out.
        why: String,
    },
    /// A target selects nothing.
    SelectsNothing(SelectsNothing),
    /// A delay is below the floor.
    BelowFloor {
        /// The target's line.
        line: usize,
        /// The delay that the line asks for.
        delay: Nanos,
        /// The shortest delay at the costliest probe site of the target.
        floor: Nanos,
    },
    /// A delay is exact for calls that follow each other closely. After a sleep the delay is below the floor.
    BelowColdFloor {
        /// The target's line.
        line: usize,
        /// The delay that the line asks for.
        delay: Nanos,
        /// The shortest delay at the costliest probe site of the target when caches are cold.
        floor: Nanos,
    },
    /// The kernel spins a delay that is so long that it holds up other threads.
    LongInKernel {
        /// The target's line.
        line: usize,
        /// The delay that the line asks for.
        delay: Nanos,
    },
    /// We do not time some calls, although the user requests it.
    NotTimed {
        /// Sentence about which calls we do not time, and why.
        text: String,
    },
}

/// A target that selects nothing, and why in each process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelectsNothing {
    /// The target's line.
    pub line: usize,
    /// The target as its line gives it.
    pub target: String,
    /// The reasons in each process, if we know any.
    pub processes: Vec<(Pid, Vec<Reason>)>,
}

/// Why a target selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// What resolving the target found.
    Found(String),
    /// The target on this line already selects the functions.
    SelectedBy(usize),
    /// The pattern matches no file that the process maps.
    NoFile {
        /// The module's pattern.
        pattern: String,
    },
    /// The process runs code that it compiled itself, such as a JIT's. Targets cannot name such code.
    Jit,
    /// No loaded function matches the target's `caller=`. Gives the closest names, if any.
    NoCaller {
        /// The pattern after `caller=`.
        pattern: String,
        /// Names in the form that a line of targets uses.
        nearest: Vec<String>,
    },
    /// No function has this name. The list has the closest names.
    Nearest(Vec<String>),
}
