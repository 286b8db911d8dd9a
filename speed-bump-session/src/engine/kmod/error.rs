//! The reasons why we cannot use the kernel module, or why it does not execute a command.

use std::{io, path::PathBuf};

use rustix::io::Errno;

use super::{NameError, TARGETS, UpstreamRefusal};
use crate::{failure::FailureKind, probe::in_place::NotInPlace, units::Pid};

/// Why the engine cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum KmodError {
    /// The module's files are missing.
    #[error(
        "the kernel module speed_bump is not loaded ({} is missing): build it with `make -C kmod`, load it \
         with `insmod kmod/speed_bump.ko`, or use --engine bpf", .folder.display()
    )]
    Absent {
        /// The folder where the files should be.
        folder: PathBuf,
    },
    /// We may not open a file of the module.
    #[error("not permitted to {action} {}: the kernel module's files are root's; use sudo", .file.display())]
    Denied {
        /// `read` or `write`.
        action: &'static str,
        /// Path of the file in /sys, or of the record.
        file: PathBuf,
    },
    /// A file contains text that the module never writes.
    #[error("{} says `{text}`, which is not what the kernel module speed_bump writes there: another module \
             has its name", .file.display())]
    Unexpected {
        /// Path of the file in /sys, or of the record.
        file: PathBuf,
        /// The contents of the file.
        text: String,
    },
    /// The module is upstream's, which has the same files as ours. Upstream's module has a fault: if a
    /// process that the kernel itself started calls a target with `pid=`, the module never finishes its
    /// search for the process.
    #[error(
        "the loaded module speed_bump is not this project's ({} has no total_interrupted) but upstream's. A \
         program that the kernel starts by itself (modprobe, a handler of core dumps) hangs for ever there, \
         and cannot be killed, if it calls a function that is a target for one process. Safe are functions \
         of files that no such program runs: those of programs and libraries of your own, outside of /usr, \
         /bin, /sbin and /lib; never those of libc. To use it for such functions: --accept-upstream-module. \
         Otherwise unload it (`rmmod speed_bump`) and load kmod/speed_bump.ko, or use --engine \
         bpf", .file.display()
    )]
    Other {
        /// The file that shows this.
        file: PathBuf,
    },
    /// We could not read or write a file of the module.
    #[error("cannot {action} {}: {error}", .file.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// Path of the file in /sys, or of the record.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A target selects nothing, because no path leads to a file that the process runs.
    #[error("{0}")]
    OutOfReach(String),
    /// The module accepted functions, but their breakpoints are not in the process.
    #[error(transparent)]
    NotInPlace(#[from] NotInPlace),
    /// The module refused a command.
    #[error("the kernel module refuses `{command}`: {why}")]
    Refused {
        /// The line that we wrote to `targets`.
        command: String,
        /// The module's answer.
        why: Refusal,
    },
    /// Upstream's module must not do this.
    #[error(transparent)]
    Upstream(#[from] UpstreamRefusal),
    /// The module's commands cannot express the target.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Another user of the module has the same target.
    #[error(
        "somebody else has the target {name} in the kernel module already ({terms}): leave it out with a \
         line `!…` in the targets file, or remove it there (echo '-{name}' > {})", .file.display()
    )]
    Taken {
        /// The target's name.
        name: String,
        /// The target's delay, and its user.
        terms: String,
        /// The file for commands.
        file: PathBuf,
    },
    /// There are more functions than the module has room for.
    #[error(
        "{wanted} functions are selected, and the kernel module has room for {TARGETS} targets, of which \
         {others} are somebody else's: select fewer, or use --engine bpf"
    )]
    TooMany {
        /// The number of selected functions.
        wanted: usize,
        /// The number of targets of other users.
        others: usize,
    },
    /// Enabling the module would start another user's delays.
    #[error(
        "the kernel module is disabled and has {others} targets of somebody else ({first}): enabling it \
         would begin their delays too; enable it yourself (echo 1 > {}) if they may begin, or remove \
         them", .file.display()
    )]
    OthersWait {
        /// The number of the other user's targets.
        others: usize,
        /// One of these targets.
        first: String,
        /// The file that enables the module.
        file: PathBuf,
    },
    /// The target process has ended.
    #[error("process {pid} has ended")]
    Gone {
        /// PID of the target process.
        pid: Pid,
    },
    /// We could not record our targets, so no later run could remove them.
    #[error("cannot write {}, which a later run needs to remove what a killed one has left in the kernel \
             module: {error}", .file.display())]
    Record {
        /// Path of the file in /sys, or of the record.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The module's error for a command (kmod/README.md has all of them).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `EINVAL`
    #[error("it does not understand this command; is the module of another version than this tool knows?")]
    Malformed,
    /// `ENAMETOOLONG`
    #[error("the path has 256 bytes or more, or the symbol 128 or more; move the file, or use --engine bpf")]
    NameTooLong,
    /// `ERANGE`
    #[error("the delay is over 10s, or no process can have that PID; ask for less")]
    OutOfRange,
    /// `ENOENT`
    #[error(
        "there is no such target, no such file, or no such function in it; look with `list`, and whether the \
         file has been replaced"
    )]
    NotThere,
    /// `ENOEXEC`
    #[error("the file is no 64-bit ELF program or library of this machine, or is damaged; name another file")]
    NotElf,
    /// `EEXIST`
    #[error(
        "somebody else has a target at that place, by this name or by another one of the same file; leave it \
         out with a line `!…` in the targets file, or remove the other (targets_list shows it)"
    )]
    Exists,
    /// `ENOSPC`
    #[error("it has {TARGETS} targets already; remove some, select fewer, or use --engine bpf")]
    Full,
    /// `ESRCH`
    #[error("there is no such process; it may have ended")]
    NoProcess,
    /// `EBUSY`
    #[error(
        "somebody has the file open for writing, another tracer has that place with a semaphore, or the \
         module is being unloaded; try again when they are done"
    )]
    Busy,
    /// `EOPNOTSUPP`
    #[error(
        "the kernel cannot step over the function's first instruction; leave it out, or use --engine bpf, \
         which may find another place"
    )]
    NoStep,
    /// `EIO`
    #[error(
        "the file cannot be read, or its file system cannot have breakpoints; copy the program to another one"
    )]
    FileSystem,
    /// `EACCES`, `EPERM`
    #[error("not permitted: the module's files are root's, and the file must be readable; use sudo")]
    Denied,
    /// Any other error.
    #[error("{0}")]
    Other(Errno),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::INVAL => Self::Malformed,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::RANGE => Self::OutOfRange,
            Errno::NOENT => Self::NotThere,
            Errno::NOEXEC => Self::NotElf,
            Errno::EXIST => Self::Exists,
            Errno::NOSPC => Self::Full,
            Errno::SRCH => Self::NoProcess,
            Errno::BUSY => Self::Busy,
            Errno::OPNOTSUPP => Self::NoStep,
            Errno::IO => Self::FileSystem,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            other => Self::Other(other),
        }
    }
}

impl KmodError {
    /// Who can remedy the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Name(_) | Self::TooMany { .. } => FailureKind::Usage,
            Self::Gone { .. } => FailureKind::Gone,
            Self::Absent { .. }
            | Self::Denied { .. }
            | Self::Unexpected { .. }
            | Self::Other { .. }
            | Self::Io { .. }
            | Self::Refused { .. }
            | Self::OutOfReach(_)
            | Self::NotInPlace(_)
            | Self::Upstream(_)
            | Self::Taken { .. }
            | Self::OthersWait { .. }
            | Self::Record { .. } => FailureKind::System,
        }
    }

    /// The error for a file of the module that we could not read or write.
    pub(super) fn file(action: &'static str, file: PathBuf, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => {
                Self::Absent { folder: file.parent().map(PathBuf::from).unwrap_or_default() }
            }
            io::ErrorKind::PermissionDenied => Self::Denied { action, file },
            _ => Self::Io { action, file, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        let all = [
            Errno::INVAL,
            Errno::NAMETOOLONG,
            Errno::RANGE,
            Errno::NOENT,
            Errno::NOEXEC,
            Errno::EXIST,
            Errno::NOSPC,
            Errno::SRCH,
            Errno::BUSY,
            Errno::OPNOTSUPP,
            Errno::IO,
            Errno::ACCESS,
        ];
        let mut texts: Vec<_> = all.map(|errno| Refusal::from(errno).to_string()).into();
        assert!(texts.iter().all(|text| text.contains(';') || text.contains(": ")), "{texts:?}");
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), all.len());
        assert_eq!(Refusal::from(Errno::LOOP), Refusal::Other(Errno::LOOP));
    }
}
