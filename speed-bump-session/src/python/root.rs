//! Opens files as a process sees them, without ever leaving the process's root.
//!
//! The process controls the names: it may put a symbolic link, a pipe or a device where we expect a file. So
//! a lookup stays below the root (`openat2`, Linux 5.6). We open a file only after checking that it is
//! regular, and the caller bounds how much we read.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use crate::{
    sys::below::{self, LastLink},
    units::Pid,
};

/// A process's root folder and working folder.
#[derive(Debug)]
pub struct ProcessRoot {
    root: OwnedFd,
    working: Option<OwnedFd>,
}

impl ProcessRoot {
    /// Opens the present root and working folder of a process or thread.
    ///
    /// # Errors
    /// The process is gone, or we may not inspect it (`CAP_SYS_PTRACE`).
    pub fn of_process(pid: Pid) -> io::Result<Self> {
        let mut this = Self::at(Path::new(&format!("/proc/{pid}/root")))?;
        this.working = folder(Path::new(&format!("/proc/{pid}/cwd"))).ok();
        Ok(this)
    }

    /// Takes a folder as the root. Then relative paths lead to no file.
    ///
    /// # Errors
    /// We cannot open the folder.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { root: folder(path)?, working: None })
    }

    /// Opens a regular file for reading. A relative path starts at the working folder and stays below it.
    ///
    /// # Errors
    /// `InvalidInput` for anything but a regular file, which we then do not open; otherwise the system's
    /// error.
    pub fn open(&self, path: &Path, last: LastLink) -> io::Result<File> {
        if path.is_absolute() {
            return Ok(below::open_below(self.root.as_fd(), path, last)?);
        }
        let working = self.working.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let refused = if last == LastLink::Refuse { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::PATH | OFlags::CLOEXEC | refused;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let place = openat2(working, path, flags, Mode::empty(), resolve)?;
        Ok(below::open_regular(place.as_fd())?)
    }

    /// Reads a whole regular file of at most `limit` bytes, following links below the root.
    ///
    /// # Errors
    /// See [`open`](Self::open). `FileTooLarge` if the file is longer than `limit`.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // We do not trust the file's size, because the file may grow while we read it.
        self.open(path, LastLink::Follow)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    }
}

fn folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_stay_below_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("root");
        fs::create_dir_all(inside.join("etc")).unwrap();
        fs::write(folder.path().join("secret"), "outside").unwrap();
        fs::write(inside.join("etc/secret"), "inside").unwrap();
        symlink("/etc/secret", inside.join("absolute")).unwrap();
        symlink("../../../etc/secret", inside.join("upwards")).unwrap();
        symlink("../secret", inside.join("escape")).unwrap();
        symlink("/proc/self/root", inside.join("magic")).unwrap();

        let root = ProcessRoot::at(&inside).unwrap();
        for path in ["/etc/secret", "/absolute", "/upwards", "/../../etc/secret"] {
            assert_eq!(root.read(Path::new(path), 100).unwrap(), b"inside", "{path}");
        }
        for path in ["/escape", "/magic/etc/passwd", "relative"] {
            assert_eq!(
                root.read(Path::new(path), 100).unwrap_err().kind(),
                io::ErrorKind::NotFound,
                "{path}"
            );
        }
        let refused = root.open(Path::new("/absolute"), LastLink::Refuse).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ten"), "0123456789").unwrap();
        rustix::fs::mknodat(
            CWD,
            folder.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let root = ProcessRoot::at(folder.path()).unwrap();
        assert_eq!(root.read(Path::new("/ten"), 10).unwrap().len(), 10);
        let error = root.read(Path::new("/ten"), 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        for path in ["/pipe", "/"] {
            let error = root.read(Path::new(path), 10).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }

    #[test]
    fn relative_paths_start_where_the_process_works() {
        let root =
            ProcessRoot::of_process(Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap()).unwrap();
        let text = root.read(Path::new("Cargo.toml"), 1 << 20).unwrap();
        assert_eq!(text, fs::read("Cargo.toml").unwrap());
        assert!(root.read(Path::new("../Cargo.toml"), 1 << 20).is_err());
    }
}
