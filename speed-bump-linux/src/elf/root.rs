//! The root directory of a process. We search for the process's debug files below this directory. This module
//! also opens files by our own paths.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, open};

use crate::sys::below::{self, LastLink, OpenError};

/// A directory. We resolve paths in it as if it were `/`.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    path: PathBuf,
}

impl Root {
    /// Opens the directory, such as `/proc/PID/root`. The value means the same directory even after the
    /// process has ended.
    ///
    /// # Errors
    /// The system's error. Without `CAP_SYS_PTRACE`, the error is `EACCES` for other users' processes.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { directory, path: path.to_owned() })
    }

    /// The path by which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file for reading by its path below the root.
    pub(super) fn open_regular(&self, path: &Path) -> Result<File, OpenError> {
        below::open_below(self.directory.as_fd(), path, LastLink::Follow)
    }
}

/// Opens a regular file for reading, by a path in our own mount namespace.
pub(super) fn open_regular(path: &Path) -> Result<File, OpenError> {
    below::open_regular(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_a_directory() {
        assert!(Root::open(Path::new("/proc/self/root")).is_ok());
        let file = Root::open(Path::new("/proc/self/exe"));
        assert_eq!(file.map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::NotADirectory));
    }

    #[test]
    fn a_device_is_not_opened() {
        let opened = open_regular(Path::new("/dev/null"));
        assert!(matches!(opened, Err(OpenError::Special("character device"))), "{opened:?}");
    }
}
