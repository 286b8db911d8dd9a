//! The reasons why we cannot attach to a process.

use std::{io, path::PathBuf};

use super::{access::DenialReason, program::Difference};
use crate::{capability::Capability, units::Pid};

/// Why we refused a process, or could not read it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// No process has the PID.
    #[error(
        "no process has PID {pid}: it has ended, or the number is of another PID namespace than ours \
         (inside a container PIDs are numbered anew; `ps` on this side shows ours)"
    )]
    NoSuchProcess {
        /// The requested PID.
        pid: Pid,
    },
    /// The process ended after it was opened.
    #[error("process {pid} has ended")]
    Gone {
        /// The PID of the process. Another process may have this PID by now.
        pid: Pid,
    },
    /// The process runs another program than the one that we inspected.
    #[error(
        "process {pid} runs another program: {difference}; nothing was changed; attach again if that is what \
         you mean"
    )]
    OtherProgram {
        /// The PID of the process.
        pid: Pid,
        /// The difference.
        difference: Difference,
    },
    /// The number is the id of a thread, not of a process.
    #[error("{pid} is a thread of process {process}: pass --pid {process}, which covers all its threads")]
    Thread {
        /// The requested number.
        pid: Pid,
        /// The process of that thread.
        process: Pid,
    },
    /// The process is a kernel thread, which has no user-space functions.
    #[error(
        "process {pid} ({comm}) is a kernel thread: it runs no user-space code, so there is nothing to slow"
    )]
    KernelThread {
        /// The requested PID.
        pid: Pid,
        /// The name of the process.
        comm: String,
    },
    /// The process is a zombie: it has ended, and its parent has not waited for it.
    #[error(
        "process {pid} ({comm}) is a zombie: it has ended, and its parent{} has not yet waited for it",
        .parent.map(|parent| format!(" {parent}")).unwrap_or_default()
    )]
    Zombie {
        /// The requested PID.
        pid: Pid,
        /// The name of the process.
        comm: String,
        /// The PID of the zombie's parent; `None` if the parent is outside our PID namespace.
        parent: Option<Pid>,
    },
    /// The main thread has ended, and the other threads are ending.
    #[error(
        "process {pid} ({comm}) has ended its main thread, and no other of its threads was found: it is \
         ending, or /proc does not show them"
    )]
    MainThreadEnded {
        /// The requested PID.
        pid: Pid,
        /// The name of the process.
        comm: String,
    },
    /// The PID belongs to this tool, which would delay itself.
    #[error("PID {pid} is speed-bump-ebpf itself: pass the PID of the process to slow")]
    Ourselves {
        /// The requested PID.
        pid: Pid,
    },
    /// The process runs a 32-bit program; programs of x32 are 32-bit, too.
    #[error(
        "process {pid} runs the 32-bit program {} ({machine}): only 64-bit programs can be \
         slowed", .path.display()
    )]
    ThirtyTwoBit {
        /// The requested PID.
        pid: Pid,
        /// The path of the program, from /proc/PID/exe.
        path: PathBuf,
        /// The architecture in its ELF header.
        machine: String,
    },
    /// The process runs a program for another architecture.
    #[error(
        "process {pid} runs {}, a program for {machine}, on {}: it is interpreted or emulated, so there are \
         no instructions of its own to probe; attach on a machine of its architecture",
        .path.display(), std::env::consts::ARCH
    )]
    OtherArchitecture {
        /// The requested PID.
        pid: Pid,
        /// The path of the program, from /proc/PID/exe.
        path: PathBuf,
        /// The architecture in its ELF header.
        machine: String,
    },
    /// The program is not an ELF file.
    #[error("process {pid} runs {}, which is not an ELF file: only ELF programs can be \
             slowed", .path.display())]
    NotElf {
        /// The requested PID.
        pid: Pid,
        /// The path of the program, from /proc/PID/exe.
        path: PathBuf,
    },
    /// We may not inspect the process.
    #[error("not permitted to read /proc/{pid}/{file}: {reason}")]
    Denied {
        /// The requested PID.
        pid: Pid,
        /// The file below /proc/PID that we may not read.
        file: &'static str,
        /// The rule that forbids the access, and the way out.
        reason: DenialReason,
    },
    /// The process exists, but /proc does not show it.
    #[error(
        "process {pid} exists, but /proc hides it: /proc is mounted with hidepid; run as root, or with \
         CAP_SYS_PTRACE, or in the group that its gid= option names"
    )]
    Hidden {
        /// The requested PID.
        pid: Pid,
    },
    /// /proc is missing, or shows another PID namespace than ours.
    #[error(
        "/proc does not show our own PID namespace ({}; we are {own}): mount a proc file system of this \
         namespace there, or run in the namespace that /proc belongs to",
        .shown.map_or_else(|| "/proc/self is missing".to_owned(), |shown| format!("/proc/self says {shown}"))
    )]
    ForeignProc {
        /// The PID of this tool.
        own: i32,
        /// The number in /proc/self.
        shown: Option<i32>,
    },
    /// The kernel has no `pidfd_open`, or a sandbox forbids it.
    #[error(
        "this kernel has no pidfd_open (Linux 5.3 and later have it; some container sandboxes block it): \
         without it a PID could be reused while the tool uses it; use a newer kernel or run outside the \
         sandbox"
    )]
    NoPidfd,
    /// A file below /proc/PID could not be read.
    #[error("reading /proc/{pid}/{file}: {source}")]
    Io {
        /// The requested PID.
        pid: Pid,
        /// The file below /proc/PID.
        file: &'static str,
        /// The system's error.
        r#source: io::Error,
    },
    /// A file below /proc/PID is longer than we read.
    #[error(
        "/proc/{pid}/{file} is longer than we read: the process has far more mappings, or files with \
         far longer names, than programs have"
    )]
    TooLarge {
        /// The requested PID.
        pid: Pid,
        /// The file below /proc/PID.
        file: &'static str,
    },
    /// A file below /proc/PID is not as the kernel's documentation says.
    #[error("/proc/{pid}/{file} is not as Linux writes it ({what}): is /proc a real procfs?")]
    Malformed {
        /// The requested PID.
        pid: Pid,
        /// The file below /proc/PID.
        file: &'static str,
        /// The difference.
        what: String,
    },
}

/// Kinds of [`ProcessError`] that callers handle differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// There is no such process, or it has ended.
    Gone,
    /// The process exists, but cannot be a target.
    Unsupported,
    /// We lack a privilege.
    Privilege,
    /// The system (kernel, /proc) lacks something.
    System,
}

impl ProcessError {
    /// The capability with which we could inspect the process, if there is one.
    pub fn missing(&self) -> Option<Capability> {
        match self {
            Self::Denied { reason, .. } => reason.missing(),
            Self::Hidden { .. } => Some(Capability::SysPtrace),
            _ => None,
        }
    }

    /// The kind of this error.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::NoSuchProcess { .. }
            | Self::Gone { .. }
            | Self::OtherProgram { .. }
            | Self::Zombie { .. } => RefusalKind::Gone,
            Self::Thread { .. }
            | Self::KernelThread { .. }
            | Self::MainThreadEnded { .. }
            | Self::Ourselves { .. }
            | Self::ThirtyTwoBit { .. }
            | Self::OtherArchitecture { .. }
            | Self::NotElf { .. }
            | Self::TooLarge { .. } => RefusalKind::Unsupported,
            Self::Denied { .. } | Self::Hidden { .. } => RefusalKind::Privilege,
            Self::ForeignProc { .. } | Self::NoPidfd | Self::Io { .. } | Self::Malformed { .. } => {
                RefusalKind::System
            }
        }
    }
}
