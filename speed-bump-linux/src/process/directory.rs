//! A process's directory in /proc, which we keep open, and lookups that start from it.
//!
//! A lookup relative to the directory's descriptor reaches the process for which it was opened, or fails with
//! `ESRCH`. A later process with the same PID has another directory.
//!
//! If the main thread of a process has ended, this directory shows neither memory nor files. But the
//! directory /proc/TID of another of its threads shows them. /proc does not list that directory, but we can
//! open it. So we read the directory of another thread instead. When that thread ends too, we take the next
//! one.

use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, openat, readlinkat, statat},
    io::Errno,
};

use super::{ProcessError, stat::Stat, status::Status};
use crate::units::Pid;

/// The most bytes of `maps` that we read. A process has at most 65,530 mappings, unless root raises the limit
/// (vm.max_map_count). Each takes about 120 bytes. If all names had 4 KiB, `maps` would have 270 MiB.
const MAPS_LIMIT: u64 = 32 << 20;
/// The most bytes of any other file that we read: enough for a list of 130,000 children, or for a `status`
/// with 65,536 groups, which is the kernel's maximum.
const FILE_LIMIT: u64 = 1 << 20;

/// An open directory /proc/PID.
#[derive(Debug)]
pub(super) struct ProcDirectory {
    pid: Pid,
    /// The directory of the main thread.
    own: OwnedFd,
    /// The directory of another thread, if the main thread has ended.
    stand_in: RwLock<Option<Arc<StandIn>>>,
}

/// A thread whose directory we read in place of the main thread's.
#[derive(Debug)]
struct StandIn {
    thread: Pid,
    fd: OwnedFd,
}

impl StandIn {
    /// Opens the directory of a thread. `None` if the thread has ended, or if its TID now belongs to another
    /// process.
    fn open(process: Pid, thread: Pid) -> Option<Self> {
        let fd = open_directory(thread).ok()?;
        let read =
            |name: &str| read_file(openat(&fd, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, name);
        let status = Status::parse(&read("status").ok()?).ok()?;
        let stat = Stat::parse(&read("stat").ok()?)?;
        (status.thread_group == process && !stat.has_ended()).then_some(Self { thread, fd })
    }
}

fn open_directory(pid: Pid) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, format!("/proc/{pid}"), flags, Mode::empty())
}

impl ProcDirectory {
    pub(super) fn open(pid: Pid) -> Result<Self, Errno> {
        open_directory(pid).map(|own| Self { pid, own, stand_in: RwLock::default() })
    }

    /// From now on, reads the directory of another thread, because the main thread has ended. Returns whether
    /// there is another thread.
    pub(super) fn stand_in(&self) -> bool {
        let threads = self.numbers_in(&self.own, "task").unwrap_or_default();
        let others = threads.into_iter().filter(|thread| *thread != self.pid);
        let found = others.filter_map(|thread| StandIn::open(self.pid, thread)).next();
        let is_there = found.is_some();
        *self.stand_in.write().unwrap_or_else(PoisonError::into_inner) = found.map(Arc::new);
        is_there
    }

    /// The thread whose directory we read: the main thread, or another one if the main thread has ended.
    pub(super) fn thread(&self) -> Pid {
        self.now().map_or(self.pid, |stand_in| stand_in.thread)
    }

    fn now(&self) -> Option<Arc<StandIn>> {
        self.stand_in.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the file of an entry. If the entry is a link, this follows the link, because links here are the
    /// kernel's own.
    pub(super) fn open_entry(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.look_up(|directory| openat(directory, name, flags | OFlags::CLOEXEC, Mode::empty()))
    }

    /// Calls `look` with the present directory. If the thread of this directory has ended, calls `look` once
    /// more with the directory of another thread.
    fn look_up<T>(&self, look: impl Fn(&OwnedFd) -> Result<T, Errno>) -> Result<T, Errno> {
        let Some(stand_in) = self.now() else { return look(&self.own) };
        match look(&stand_in.fd) {
            Err(Errno::SRCH | Errno::NOENT) => {
                self.stand_in();
                // If there is no other thread, the process has ended, or a thread has executed a program and
                // has become the main thread.
                self.now().map_or_else(|| look(&self.own), |stand_in| look(&stand_in.fd))
            }
            found => found,
        }
    }

    /// Reads a file of the process. `EFBIG` if it is longer than [`FILE_LIMIT`] or [`MAPS_LIMIT`].
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, Errno> {
        self.look_up(|directory| {
            read_file(openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, name)
        })
    }

    /// Reads a file in the main thread's directory, even if the main thread has ended: some files there show
    /// how the process was started.
    pub(super) fn read_own(&self, name: &str) -> Result<Vec<u8>, Errno> {
        read_file(openat(&self.own, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, name)
    }

    pub(super) fn read_link(&self, name: &str) -> Result<PathBuf, Errno> {
        let target = self.look_up(|directory| readlinkat(directory, name, Vec::new()))?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// The entries of a subdirectory that are numbers, for example in `task`.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<Pid>, Errno> {
        self.numbers_in(&self.own, name)
    }

    fn numbers_in(&self, directory: &OwnedFd, name: &str) -> Result<Vec<Pid>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(directory, name, flags, Mode::empty())?;
        let mut numbers = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            let entry = entry?;
            numbers.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<Pid>().ok()));
        }
        Ok(numbers)
    }

    /// The owner of the files in the directory: the process's effective user, or root if the process is not
    /// dumpable. (The directory itself always belongs to the effective user.)
    pub(super) fn owner(&self) -> Option<u32> {
        self.look_up(|directory| statat(directory, "status", AtFlags::empty())).ok().map(|stat| stat.st_uid)
    }
}

/// Reads an open file. `name` decides the limit. The error is `EFBIG` if the file is too long.
fn read_file(file: OwnedFd, name: &str) -> Result<Vec<u8>, Errno> {
    let limit = if name == "maps" { MAPS_LIMIT } else { FILE_LIMIT };
    let mut bytes = Vec::new();
    match File::from(file).take(limit + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > limit => Err(Errno::FBIG),
        Ok(_) => Ok(bytes),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// Fails if /proc is missing, or shows another PID namespace than ours: PIDs there would mean other
/// processes.
pub(super) fn check_proc() -> Result<(), ProcessError> {
    let shown = readlinkat(CWD, "/proc/self", Vec::new())
        .ok()
        .and_then(|target| target.to_str().ok().and_then(|text| text.parse::<i32>().ok()));
    let own = rustix::process::getpid().as_raw_nonzero().get();
    if shown == Some(own) { Ok(()) } else { Err(ProcessError::ForeignProc { own, shown }) }
}

/// The process of a thread, from /proc/TID/status.
pub(super) fn thread_group(thread: Pid) -> Option<Pid> {
    let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    Status::parse(&status).ok().map(|status| status.thread_group)
}

/// The parent of a process, from /proc/PID/status.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    Status::parse(&status).ok()?.parent
}
