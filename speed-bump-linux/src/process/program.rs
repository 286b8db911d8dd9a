//! Identifies the program that a process runs, so that we notice when it executes another.
//!
//! What we know about a process is true of the program that the process ran when we read it. Before we change
//! something in the process, we check that the process still runs this program. It may have executed a
//! program with other privileges (set-user-ID).

use std::{fmt, path::PathBuf};

use rustix::fs::{AtFlags, OFlags, StatxFlags, makedev, statx};

use super::{Process, ProcessError, StartTime, access::AccessMode, status::Credentials};

/// The program that a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The path of the program's file, for messages.
    path: PathBuf,
    /// Device and inode of the program's file.
    file: (u64, u64),
    /// When the process started.
    started: StartTime,
    /// The address where the stack begins (field 28 of /proc/PID/stat), or 0 if we may not read it. The
    /// kernel chooses this address at random at each exec. So it shows that the process has executed the same
    /// file again.
    stack: u64,
    credentials: Credentials,
}

/// How a program differs from the one that the process ran before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The process now runs another file.
    File {
        /// Path of the file that the process ran before.
        before: PathBuf,
        /// Path of the file that the process runs now.
        now: PathBuf,
    },
    /// The process has executed the same file again, or another process has this PID now.
    Anew {
        /// Path of the program, before and now.
        path: PathBuf,
    },
    /// The users, groups or capabilities have changed.
    Credentials {
        /// Path of the program, before and now.
        path: PathBuf,
        /// Effective user before.
        before: u32,
        /// Effective user now.
        now: u32,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { before, now } => {
                write!(f, "it ran {} when it was inspected, and now runs {}", before.display(), now.display())
            }
            Self::Anew { path } => write!(f, "it has executed {} anew", path.display()),
            Self::Credentials { path, before, now } if before != now => {
                write!(
                    f,
                    "{} ran as user {before} when it was inspected, and now runs as user {now}",
                    path.display()
                )
            }
            Self::Credentials { path, .. } => {
                write!(f, "{} has changed its users, groups or capabilities", path.display())
            }
        }
    }
}

impl Process {
    /// Reads which program the process runs now.
    ///
    /// # Errors
    /// The process has ended, or we may not look into it.
    pub fn program(&self) -> Result<Program, ProcessError> {
        let io = |source| ProcessError::Io { pid: self.pid, file: "exe", source };
        let file = self.directory.open_entry("exe", OFlags::PATH);
        let file = std::fs::File::from(file.map_err(|errno| self.failure("exe", AccessMode::Read, errno))?);
        // We send no request to the file system, because it may not answer, and a thread of the process may
        // be stopped meanwhile.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let known = statx(&file, c"", flags, StatxFlags::INO).map_err(|errno| io(errno.into()))?;
        let stat = self.stat()?;
        Ok(Program {
            path: self.executable()?,
            file: (makedev(known.stx_dev_major, known.stx_dev_minor), known.stx_ino),
            started: StartTime(stat.starttime),
            stack: stat.startstack,
            credentials: self.status()?.credentials,
        })
    }

    /// Checks that the process still runs a program, with the same credentials. If ptrace has stopped a
    /// thread of the process, the result stays true until that thread continues or ends. The reason is that
    /// an exec first ends all other threads.
    ///
    /// # Errors
    /// [`ProcessError::OtherProgram`], or the errors of [`Process::program`].
    pub fn check_program(&self, expected: &Program) -> Result<(), ProcessError> {
        match self.program()?.difference_from(expected) {
            None => Ok(()),
            Some(difference) => Err(ProcessError::OtherProgram { pid: self.pid, difference }),
        }
    }
}

impl Program {
    fn difference_from(self, before: &Self) -> Option<Difference> {
        if self.file != before.file {
            return Some(Difference::File { before: before.path.clone(), now: self.path });
        }
        if (self.started, self.stack) != (before.started, before.stack) {
            return Some(Difference::Anew { path: self.path });
        }
        (self.credentials != before.credentials).then(|| Difference::Credentials {
            path: self.path,
            before: effective_user(&before.credentials),
            now: effective_user(&self.credentials),
        })
    }
}

fn effective_user(credentials: &Credentials) -> u32 {
    let [_real, effective, ..] = credentials.users;
    effective
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn program() -> Program {
        let credentials = Credentials { users: [65_534; 4], groups: [65_534; 4], permitted: 0, effective: 0 };
        let (path, started) = ("/usr/bin/python3".into(), StartTime(7));
        Program { path, file: (1, 2), started, stack: 0x7ffd_0000, credentials }
    }

    #[test]
    fn every_change_is_told() {
        let before = program();
        let su = || PathBuf::from("/usr/bin/su");
        let credentials = |change: fn(&mut Credentials)| {
            let mut credentials = before.credentials;
            change(&mut credentials);
            credentials
        };
        let cases = [
            (before.clone(), None),
            (
                Program { path: su(), file: (1, 3), ..before.clone() },
                Some("it ran /usr/bin/python3 when it was inspected, and now runs /usr/bin/su"),
            ),
            (
                Program { file: (3, 2), ..before.clone() },
                Some("it ran /usr/bin/python3 when it was inspected, and now runs /usr/bin/python3"),
            ),
            (Program { stack: 0x7ffc_0000, ..before.clone() }, Some("it has executed /usr/bin/python3 anew")),
            (
                Program { started: StartTime(8), ..before.clone() },
                Some("it has executed /usr/bin/python3 anew"),
            ),
            (
                Program { credentials: credentials(|c| c.users[1] = 0), ..before.clone() },
                Some("/usr/bin/python3 ran as user 65534 when it was inspected, and now runs as user 0"),
            ),
            (
                Program { credentials: credentials(|c| c.groups[3] = 0), ..before.clone() },
                Some("/usr/bin/python3 has changed its users, groups or capabilities"),
            ),
            (
                Program { credentials: credentials(|c| c.effective = 1), ..before.clone() },
                Some("/usr/bin/python3 has changed its users, groups or capabilities"),
            ),
        ];
        for (now, told) in cases {
            let shown = format!("{now:?}");
            assert_eq!(
                now.difference_from(&before).map(|difference| difference.to_string()).as_deref(),
                told,
                "{shown}"
            );
        }
    }
}
