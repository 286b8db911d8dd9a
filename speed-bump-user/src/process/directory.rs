//! A process's directory in /proc, held open, and the lookups that start from it.
//!
//! Lookups relative to the directory's descriptor reach the process it was opened for or fail with `ESRCH`;
//! a later owner of the PID has another directory.

use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, openat, readlinkat, statat},
    io::Errno,
};

use super::{ProcessError, status::Status};
use crate::units::Pid;

/// Bytes of `maps`: a process has at most 65,530 mappings unless root says otherwise (vm.max_map_count),
/// whose lines have some 120 bytes. Names of 4 KiB would make it 270 MiB.
const MAPS_LIMIT: u64 = 32 << 20;
/// Bytes of any other file: lists of children with 130,000, `status` with the 65,536 groups that one can be
/// in.
const FILE_LIMIT: u64 = 1 << 20;

/// An open /proc/PID.
#[derive(Debug)]
pub(super) struct ProcDirectory {
    fd: OwnedFd,
}

impl ProcDirectory {
    pub(super) fn open(pid: Pid) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).map(|fd| Self { fd })
    }

    /// Opens what an entry leads to. The last link is followed: links here are the kernel's own.
    pub(super) fn open_entry(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(&self.fd, name, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Reads a file of the process; `EFBIG` where it has more than [`FILE_LIMIT`], or [`MAPS_LIMIT`].
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, Errno> {
        let file = File::from(self.open_entry(name, OFlags::RDONLY)?);
        let limit = if name == "maps" { MAPS_LIMIT } else { FILE_LIMIT };
        let mut bytes = Vec::new();
        match file.take(limit + 1).read_to_end(&mut bytes) {
            Ok(_) if bytes.len() as u64 > limit => Err(Errno::FBIG),
            Ok(_) => Ok(bytes),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    pub(super) fn read_link(&self, name: &str) -> Result<PathBuf, Errno> {
        let target = readlinkat(&self.fd, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Names of the entries of a subdirectory that are numbers, such as `task`.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<Pid>, Errno> {
        let directory = self.open_entry(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut numbers = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            let entry = entry?;
            numbers.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<Pid>().ok()));
        }
        Ok(numbers)
    }

    /// The user that owns the files in it: the process's effective user, or root if it is not dumpable. (The
    /// directory itself is always the effective user's.)
    pub(super) fn owner(&self) -> Option<u32> {
        statat(&self.fd, "status", AtFlags::empty()).ok().map(|stat| stat.st_uid)
    }
}

/// Refuses to go on where /proc is absent, or shows another PID namespace than the one we live in: PIDs
/// would then mean other processes.
pub(super) fn check_proc() -> Result<(), ProcessError> {
    let shown = readlinkat(CWD, "/proc/self", Vec::new())
        .ok()
        .and_then(|target| target.to_str().ok().and_then(|text| text.parse::<i32>().ok()));
    let own = rustix::process::getpid().as_raw_nonzero().get();
    if shown == Some(own) { Ok(()) } else { Err(ProcessError::ForeignProc { own, shown }) }
}

/// The process that a thread belongs to, by /proc/TID/status.
pub(super) fn thread_group(thread: Pid) -> Option<Pid> {
    let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    Status::parse(&status).ok().map(|status| status.thread_group)
}

/// The parent of a process, by /proc/PID/status.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    Status::parse(&status).ok()?.parent
}
