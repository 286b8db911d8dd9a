//! Processes: their identity, mappings, namespaces and children, and the reasons why we cannot attach to a
//! process.
//!
//! A [`Process`] always means the process for which it was opened. It has a pidfd, and the process's
//! directory in /proc, which never leads to a later process with the same PID. We read everything through
//! these two. So we never read from another process that has got the same PID later. Nothing here changes the
//! process.

pub mod access;
pub mod architecture;
pub mod control_group;
pub mod descendants;
mod directory;
pub mod error;
pub mod mapped_file;
pub mod mappings;
mod maps;
pub mod memory;
mod mountinfo;
pub mod overlay;
pub mod program;
pub mod region;
mod same_file;
pub mod scheduling;
pub mod stat;
pub mod status;

pub use descendants::Descendants;
pub use error::{ProcessError, RefusalKind};
pub use mapped_file::{MappedFile, MappedFileError, OpenFile};
pub use mappings::{AnonymousMapping, MappedRange, Mappings};
pub use memory::{Memory, MemoryError};
pub use program::Program;
pub use region::Region;
pub use status::SignalMasks;

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    io::Errno,
    process::{PidfdFlags, pidfd_open},
};

use crate::{
    sys::{
        below::{LastLink, open_below, open_regular},
        clock::{self, ClockId},
    },
    units::{Bytes, Pid},
};
use access::AccessMode;
use directory::ProcDirectory;
use stat::Stat;
pub use status::Status;

/// A running process that we can inspect. The process is 64-bit, of this machine's architecture, has
/// user-space memory of its own, and is not this tool.
///
/// The value means the same process as long as the value exists. Once the process has ended, every method
/// that reads returns [`ProcessError::Gone`].
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    directory: ProcDirectory,
    started: StartTime,
}

/// The time when a process started, in clock ticks since boot (field 22 of /proc/PID/stat). Together with the
/// PID, it identifies a process for other tools and at other times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartTime(pub u64);

impl Process {
    /// Opens a process. If we cannot attach to the process, this returns the reason.
    ///
    /// Needs only the right to read (`PTRACE_MODE_READ`). [`Privileges`](crate::kernel::Privileges) lists
    /// what an attach needs in addition.
    pub fn open(pid: Pid) -> Result<Self, ProcessError> {
        if pid.get() == rustix::process::getpid().as_raw_nonzero().get() {
            return Err(ProcessError::Ourselves { pid });
        }
        directory::check_proc()?;
        let pidfd = open_pidfd(pid)?;
        let directory = ProcDirectory::open(pid).map_err(|errno| missing_directory(pid, &pidfd, errno))?;
        let mut process = Self { pid, pidfd, directory, started: StartTime(0) };

        let stat = process.stat();
        // If the process of the pidfd is alive now, it still had the PID when we opened the directory. So
        // both mean the same process. A zombie keeps its PID, but we cannot attach to it.
        let ended = !process.is_alive();
        let stat = match stat {
            Ok(stat) if stat.has_ended() && ended => {
                return Err(ProcessError::Zombie { pid, comm: stat.comm, parent: Pid::new(stat.ppid) });
            }
            Ok(stat) if stat.has_ended() && !process.directory.stand_in() => {
                return Err(ProcessError::MainThreadEnded { pid, comm: stat.comm });
            }
            Ok(_) if ended => return Err(ProcessError::NoSuchProcess { pid }),
            Ok(stat) => stat,
            Err(ProcessError::Gone { pid }) => return Err(ProcessError::NoSuchProcess { pid }),
            // Every user may read this file, unless /proc is mounted with hidepid.
            Err(ProcessError::Denied { .. }) => return Err(ProcessError::Hidden { pid }),
            Err(ProcessError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(ProcessError::Hidden { pid });
            }
            Err(error) => return Err(error),
        };
        process.started = StartTime(stat.starttime);
        if stat.flags & Stat::KERNEL_THREAD != 0 {
            return Err(ProcessError::KernelThread { pid, comm: stat.comm });
        }
        let leader = process.status()?.thread_group;
        if leader != pid {
            return Err(ProcessError::Thread { pid, process: leader });
        }
        process.check_executable()?;
        Ok(process)
    }

    /// Refuses a program that is not 64-bit ELF for this machine. The caller must call this again after an
    /// exec.
    pub fn check_executable(&self) -> Result<(), ProcessError> {
        let exe = self.directory.open_entry("exe", OFlags::PATH);
        let exe = exe.map_err(|errno| self.failure("exe", AccessMode::Read, errno))?;
        let file = open_regular(exe.as_fd()).map_err(|error| {
            let source = io::Error::from(error);
            match Errno::from_io_error(&source) {
                Some(errno) => self.failure("exe", AccessMode::Read, errno),
                None => ProcessError::Io { pid: self.pid, file: "exe", source },
            }
        })?;
        let (pid, path) = (self.pid, self.executable()?);
        architecture::check(&file).map_err(|unfit| match unfit {
            architecture::ArchitectureError::ThirtyTwoBit { machine } => {
                ProcessError::ThirtyTwoBit { pid, path, machine }
            }
            architecture::ArchitectureError::OtherMachine { machine } => {
                ProcessError::OtherArchitecture { pid, path, machine }
            }
            architecture::ArchitectureError::NotElf => ProcessError::NotElf { pid, path },
            architecture::ArchitectureError::Unreadable(source) => {
                ProcessError::Io { pid, file: "exe", source }
            }
        })
    }

    /// The thread whose directory in /proc we read for the process: its main thread, or another one if the
    /// main thread has ended.
    pub fn shown_by(&self) -> Pid {
        self.directory.thread()
    }

    /// The process's PID in our own PID namespace.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// When the process started.
    pub fn started(&self) -> StartTime {
        self.started
    }

    /// Whether the process is alive. This is false as soon as the last thread has ended, even if nobody has
    /// reaped the process yet.
    pub fn is_alive(&self) -> bool {
        !has_ended(&self.pidfd)
    }

    /// Fails if the process has ended. Callers use this after reading: for a process that has ended, the
    /// kernel shows no mappings and no open files.
    pub fn is_still_there(&self) -> Result<(), ProcessError> {
        if self.is_alive() { Ok(()) } else { Err(ProcessError::Gone { pid: self.pid }) }
    }

    /// The process's own name: the first 15 bytes of the program's name, unless the process has changed it.
    pub fn comm(&self) -> Result<String, ProcessError> {
        // We read the main thread's name, because other threads have their own names.
        let bytes = self.directory.read_own("comm");
        let bytes = bytes.map_err(|errno| self.failure("comm", AccessMode::Read, errno))?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
    }

    /// A name for messages: the process's own name, or the name of its program.
    pub fn name(&self) -> String {
        let comm = self.comm().unwrap_or_default();
        if !comm.trim().is_empty() {
            return comm;
        }
        let program = self.executable().ok();
        let name = program.as_ref().and_then(|program| program.file_name());
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The arguments, as they are in the process's memory now. Empty if the process has erased them.
    pub fn command_line(&self) -> Result<Vec<OsString>, ProcessError> {
        let bytes = self.read("cmdline", AccessMode::Read)?;
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        Ok(bytes.split(|byte| *byte == 0).map(|argument| OsString::from_vec(argument.to_vec())).collect())
    }

    /// The environment with which the program started, as far as it is still in the process's memory.
    pub fn environment(&self) -> Result<Vec<OsString>, ProcessError> {
        let bytes = self.read("environ", AccessMode::Read)?;
        let variables = bytes.split(|byte| *byte == 0).filter(|variable| !variable.is_empty());
        Ok(variables.map(|variable| OsString::from_vec(variable.to_vec())).collect())
    }

    /// The time since the process was created, which may be longer than the time since its last exec.
    pub fn age(&self) -> Option<Duration> {
        let ticks = rustix::param::clock_ticks_per_second();
        let started = self.started.0.checked_mul(1_000_000_000)?.checked_div(ticks)?;
        clock::read(ClockId::Boottime).0.checked_sub(started).map(Duration::from_nanos)
    }

    /// The program's path, as the kernel shows it to us. The path ends in ` (deleted)` if someone has
    /// replaced the file on disk.
    pub fn executable(&self) -> Result<PathBuf, ProcessError> {
        self.read_link("exe")
    }

    /// The working directory, as a path of the process. `None` if the process's root is not the root of its
    /// mount namespace, because the kernel then shows another path.
    pub fn working_folder(&self) -> Result<Option<PathBuf>, ProcessError> {
        let whole = self.read_link("root")? == Path::new("/");
        if whole { self.read_link("cwd").map(Some) } else { Ok(None) }
    }

    /// Reads /proc/PID/status: credentials, tracer, threads, PIDs in namespaces, seccomp.
    pub fn status(&self) -> Result<Status, ProcessError> {
        self.parse_status(&self.read("status", AccessMode::Read)?)
    }

    fn parse_status(&self, text: &[u8]) -> Result<Status, ProcessError> {
        Status::parse(text).map_err(|field| ProcessError::Malformed {
            pid: self.pid,
            file: "status",
            what: field.0,
        })
    }

    /// The most address space that the process may take (`RLIMIT_AS`); `None` if there is no limit.
    pub fn address_limit(&self) -> Result<Option<Bytes>, ProcessError> {
        let limits = self.read("limits", AccessMode::Read)?;
        let line =
            limits.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Max address space"));
        let soft = line.and_then(|line| str::from_utf8(line).ok()?.split_whitespace().next());
        Ok(soft.and_then(|soft| soft.parse().ok()).map(Bytes))
    }

    /// The number of threads.
    pub fn threads(&self) -> Result<u32, ProcessError> {
        Ok(self.status()?.threads)
    }

    /// The debugger or other tracer of this process, if any.
    pub fn tracer(&self) -> Result<Option<Pid>, ProcessError> {
        Ok(self.status()?.tracer)
    }

    /// The process's PID in its own, innermost PID namespace (since Linux 4.1; before, the PID in ours).
    /// `/tmp/perf-PID.map` has this number.
    pub fn namespace_pid(&self) -> Result<Pid, ProcessError> {
        // We read the main thread's numbers, because other threads have other numbers.
        let status = self.directory.read_own("status");
        let status = status.map_err(|errno| self.failure("status", AccessMode::Read, errno))?;
        let status = self.parse_status(&status)?;
        Ok(status.namespace_pids.last().copied().unwrap_or(self.pid))
    }

    /// The process's root directory as a path of ours, `/proc/PID/root`. This path is for messages and for
    /// comparing paths. To read a file as the process sees it, use [`Process::open_file`].
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.shown_by()))
    }

    /// Opens a regular file for reading, by the process's own path. We follow symbolic links inside the
    /// process's root, and never out of it into our own root. If the path leads to anything but a regular
    /// file, this returns `InvalidInput`, and opens nothing.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        let root = self.directory.open_entry("root", OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(open_below(root.as_fd(), path, LastLink::Follow)?)
    }

    /// Reads the executable mappings.
    pub fn mappings(&self) -> Result<Mappings, ProcessError> {
        let maps = self.read_maps()?;
        Mappings::parse(&maps, &self.read_link("root")?).map_err(|line| ProcessError::Malformed {
            pid: self.pid,
            file: "maps",
            what: line.0,
        })
    }

    fn read_maps(&self) -> Result<Vec<u8>, ProcessError> {
        let maps = self.read("maps", AccessMode::Read)?;
        // If a thread has ended meanwhile, the list is empty. We must not conclude that the process maps no
        // files.
        if !maps.is_empty() {
            return Ok(maps);
        }
        if self.is_alive() && self.directory.stand_in() {
            return self.read("maps", AccessMode::Read);
        }
        if self.is_alive() { Ok(maps) } else { Err(ProcessError::Gone { pid: self.pid }) }
    }

    /// Reads all mappings, with and without files, sorted by address.
    pub fn regions(&self) -> Result<Vec<Region>, ProcessError> {
        let maps = self.read_maps()?;
        region::parse(&maps).map_err(|line| ProcessError::Malformed {
            pid: self.pid,
            file: "maps",
            what: line.0,
        })
    }

    /// The ids of the present threads.
    pub fn thread_ids(&self) -> Result<Vec<Pid>, ProcessError> {
        self.directory.numbers("task").map_err(|errno| self.failure("task", AccessMode::Read, errno))
    }

    /// Opens an entry of the process's directory in /proc, such as `task/12/fd/3`.
    pub fn open_entry(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(File::from(self.directory.open_entry(name, flags)?))
    }

    /// Opens the process's memory for reading. This needs `PTRACE_MODE_ATTACH`, unlike the other methods.
    pub fn memory(&self) -> Result<Memory, ProcessError> {
        self.directory
            .open_entry("mem", OFlags::RDONLY)
            .map(|file| Memory::new(self.pid, File::from(file)))
            .map_err(|errno| self.failure("mem", AccessMode::Attach, errno))
    }

    /// Opens the process's memory for reading and writing, if the kernel allows it.
    pub fn memory_to_write(&self) -> Result<File, ProcessError> {
        self.directory
            .open_entry("mem", OFlags::RDWR)
            .map(File::from)
            .map_err(|errno| self.failure("mem", AccessMode::Attach, errno))
    }

    /// Whether the process has executed another program since `memory` was opened. A process that is ending
    /// has no memory for a moment before it counts as ended. This is not another program.
    pub fn has_replaced(&self, memory: &Memory) -> bool {
        memory.is_gone()
            && match self.memory() {
                Ok(now) => !now.is_gone(),
                Err(ProcessError::Gone { .. }) => false,
                Err(_) => self.is_alive(),
            }
    }

    /// Opens the present descendants of the process. See [`Descendants`].
    pub fn descendants(&self) -> Result<Descendants, ProcessError> {
        descendants::find(self)
    }

    fn stat(&self) -> Result<Stat, ProcessError> {
        let malformed = |bytes: &[u8]| ProcessError::Malformed {
            pid: self.pid,
            file: "stat",
            what: String::from_utf8_lossy(bytes).into_owned(),
        };
        let own = self.directory.read_own("stat");
        let own = own.map_err(|errno| self.failure("stat", AccessMode::Read, errno))?;
        let mut stat = Stat::parse(&own).ok_or_else(|| malformed(&own))?;
        if self.shown_by() != self.pid {
            // The start time is the process's: other threads start later. But only a running thread shows
            // where the stack begins.
            let shown = self.read("stat", AccessMode::Read)?;
            stat.startstack = Stat::parse(&shown).ok_or_else(|| malformed(&shown))?.startstack;
        }
        Ok(stat)
    }

    fn read(&self, file: &'static str, mode: AccessMode) -> Result<Vec<u8>, ProcessError> {
        self.directory.read(file).map_err(|errno| self.failure(file, mode, errno))
    }

    fn read_link(&self, link: &'static str) -> Result<PathBuf, ProcessError> {
        self.directory.read_link(link).map_err(|errno| self.failure(link, AccessMode::Read, errno))
    }

    fn failure(&self, file: &'static str, mode: AccessMode, errno: Errno) -> ProcessError {
        let pid = self.pid;
        match errno {
            Errno::SRCH | Errno::NOENT if !self.is_alive() => ProcessError::Gone { pid },
            Errno::SRCH => ProcessError::Gone { pid },
            Errno::ACCESS | Errno::PERM => {
                ProcessError::Denied { pid, file, reason: access::explain(mode, &self.directory) }
            }
            Errno::FBIG => ProcessError::TooLarge { pid, file },
            errno => ProcessError::Io { pid, file, source: errno.into() },
        }
    }
}

impl AsFd for Process {
    /// The pidfd. It becomes readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            // The kernel is out of memory, so we know nothing about the process.
            Err(_) => return false,
        }
    }
}

fn open_pidfd(pid: Pid) -> Result<OwnedFd, ProcessError> {
    let raw = rustix::process::Pid::from_raw(pid.get()).ok_or(ProcessError::NoSuchProcess { pid })?;
    pidfd_open(raw, PidfdFlags::empty()).map_err(|errno| match errno {
        // The number is the id of a thread that is not the main thread of its process. The error is EINVAL,
        // and ENOENT from Linux 6.15 on.
        Errno::INVAL | Errno::NOENT => match directory::thread_group(pid) {
            Some(process) if process != pid => ProcessError::Thread { pid, process },
            _ => ProcessError::NoSuchProcess { pid },
        },
        Errno::SRCH => ProcessError::NoSuchProcess { pid },
        Errno::NOSYS => ProcessError::NoPidfd,
        errno => ProcessError::Io { pid, file: "pidfd", source: errno.into() },
    })
}

/// Why /proc has no directory for a process, although we have got its pidfd.
fn missing_directory(pid: Pid, pidfd: &OwnedFd, errno: Errno) -> ProcessError {
    match errno {
        Errno::NOENT | Errno::SRCH if has_ended(pidfd) => ProcessError::NoSuchProcess { pid },
        Errno::NOENT | Errno::ACCESS | Errno::PERM => ProcessError::Hidden { pid },
        errno => ProcessError::Io { pid, file: "", source: errno.into() },
    }
}
