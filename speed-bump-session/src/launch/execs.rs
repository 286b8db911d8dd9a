//! Catches each process that the command starts when the process executes a program.
//!
//! At the exec, a BPF program reports the process, and holds it for a few milliseconds at most. Our threads
//! wait for this report. One of them seizes the process, which ends the hold: the kernel then has the process
//! stopped at the exec. Only the thread that seized a process can follow it (`caught`). So this thread
//! follows the process, and a new thread waits in its place.
//!
//! A held process uses a processor, and everything else that should run there waits. So we restrict each
//! waiting thread to its own processors. There is one more waiting thread than the number of processes that
//! we can hold at the same time. If we do not catch a process in time, the process runs on, and we report it
//! as well.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
};

use aya::maps::{MapData, RingBuf};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use speed_bump_abi::Event;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    StoppedProgram,
    caught::{self, Came},
};
use crate::{
    engine::bpf::Hold,
    process::{Process, mapped_file::FileIdentity},
    python::interpreter,
    sys::{priority, ptrace::Tracee, record::read},
    units::{Nanos, Pid},
};

/// The longest hold of a process. With real-time priority, a waiting thread nearly always comes within 0.1
/// ms. On a virtual machine with neighbours, 2 ms were too short for one exec in several hundred. Without
/// real-time priority, and if all processors are busy, the thread may take longer than this hold.
const HOLD: Nanos = Nanos(10_000_000);
/// The most threads that wait.
const WAITING: usize = 4;
/// How often the threads check whether someone still needs them.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What became of a process that executed a program.
#[derive(Debug)]
pub(crate) enum Executed {
    /// The process is a CPython, and we hold it at its entry point. If this value is dropped, the process
    /// goes on.
    AtEntry(StoppedProgram),
    /// The process runs. Either it is not a CPython, or we need not hold it.
    Runs {
        /// PID of the process that executed a program.
        pid: Pid,
    },
    /// We did not stop the process at its entry point. The process runs, or has ended.
    Late {
        /// PID of the process that executed a program.
        pid: Pid,
        /// Whether the program is a CPython; `None` if unknown.
        is_python: Option<bool>,
        /// Why the process was not stopped.
        why: String,
    },
}

/// The source of these reports.
pub(crate) type Executions = UnboundedReceiver<Executed>;

/// The threads that wait for execs. Dropping this value ends them.
#[derive(Debug)]
pub(crate) struct Execs {
    shared: Arc<Shared>,
}

struct Shared {
    ring: Mutex<RingBuf<MapData>>,
    ready: OwnedFd,
    tell: UnboundedSender<Executed>,
    is_over: AtomicBool,
    /// The PID of the command itself. The command is our own child, and this code must not reap it.
    command: AtomicI32,
    pythons: Mutex<HashMap<FileIdentity, bool>>,
    /// Programs, by device and inode, that turned out at their entry point not to be a CPython.
    others: Mutex<HashSet<(u64, u64)>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

/// The settings for holding processes.
pub(crate) fn hold() -> Hold {
    // One processor must stay free: if holds used all of them, no thread could seize a process.
    Hold { limit: HOLD, tasks: processors().len().saturating_sub(1) as u64 }
}

/// The processors that we may use, divided among the waiting threads.
fn processors() -> Vec<CpuSet> {
    let Ok(own) = sched_getaffinity(None) else { return vec![CpuSet::new()] };
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).collect();
    let mut dealt = vec![CpuSet::new(); all.len().clamp(1, WAITING)];
    let threads = dealt.len();
    for (place, cpu) in all.into_iter().enumerate() {
        if let Some(set) = dealt.get_mut(place % threads) {
            set.set(cpu);
        }
    }
    dealt
}

impl Execs {
    /// Starts to wait for reports in the ring buffer.
    ///
    /// # Errors
    /// There are no more descriptors or threads.
    pub(crate) fn start(ring: RingBuf<MapData>) -> io::Result<(Self, Executions)> {
        let (tell, executions) = unbounded_channel();
        let shared = Arc::new(Shared {
            ready: ring.as_fd().try_clone_to_owned()?,
            ring: Mutex::new(ring),
            tell,
            is_over: AtomicBool::new(false),
            command: AtomicI32::new(0),
            pythons: Mutex::default(),
            others: Mutex::default(),
        });
        let execs = Self { shared };
        for own in processors() {
            Shared::spawn(&execs.shared, own)?;
        }
        Ok((execs, executions))
    }

    /// Sets the PID of the command, which is our own child. The caller must call this before the command
    /// runs.
    pub(crate) fn set_command(&self, pid: Pid) {
        self.shared.command.store(pid.get(), Ordering::Release);
    }
}

impl Drop for Execs {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
    }
}

impl Shared {
    fn spawn(shared: &Arc<Self>, own: CpuSet) -> io::Result<()> {
        let shared = Arc::clone(shared);
        let wait = move || shared.wait(own);
        thread::Builder::new().name("execs".to_owned()).spawn(wait).map(|_| ())
    }

    /// Waits for reports. The thread uses only these processors.
    fn wait(self: Arc<Self>, own: CpuSet) {
        if own.count() > 0
            && let Err(error) = sched_setaffinity(None, &own)
        {
            tracing::debug!("a thread that waits for execs may run on any processor: {error}");
        }
        be_urgent();
        while !self.is_over() {
            let mut ready = [PollFd::new(&self.ready, PollFlags::IN)];
            // We also check again after an error or a timeout.
            let _ = poll(&mut ready, Some(&LOOK_EVERY));
            while let Some(pid) = self.next() {
                // We seize the process before we do anything else, because it may be held.
                let our_child = pid.get() == self.command.load(Ordering::Acquire);
                let tracee = match Tracee::seize_for_exec(pid, our_child) {
                    Ok(tracee) => tracee,
                    Err(error) => {
                        self.tell_late(pid, format!("it cannot be traced: {error}"));
                        continue;
                    }
                };
                if let Err(error) = Self::spawn(&self, own) {
                    tracing::debug!("cannot start another thread that waits for execs: {error}");
                }
                let _ = priority::ordinary();
                self.follow(pid, tracee);
                // We end the thread here. The kernel then detaches it from everything that it still traces.
                return;
            }
        }
    }

    fn next(&self) -> Option<Pid> {
        if self.is_over() {
            return None;
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let event = read::<Event>(&ring.next()?)?;
        Pid::new(event.pid.cast_signed())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Sends a report. Returns whether there is a receiver.
    fn tell(&self, executed: Executed) -> bool {
        self.tell.send(executed).is_ok()
    }

    fn tell_runs(&self, pid: Pid) {
        self.tell(Executed::Runs { pid });
    }

    /// Reports a process that did not stop at its entry point. Inspects the process first, while it may still
    /// exist.
    fn tell_late(&self, pid: Pid, why: String) {
        let looked_at = || {
            let process = Process::open(pid).ok()?;
            let is_python = self.is_python(&process);
            process.is_alive().then_some(is_python)
        };
        self.tell(Executed::Late { pid, is_python: looked_at(), why });
    }

    fn follow(&self, pid: Pid, tracee: Tracee) {
        let wanted = |pid| program_of(pid).is_none_or(|program| !self.others().contains(&program));
        let late = match caught::to_entry(tracee, || self.is_over(), wanted) {
            Ok(Came::ToEntry(process, tracee)) if self.is_python(&process) => {
                match caught::stand(process, tracee, |stopped| self.tell(Executed::AtEntry(stopped))) {
                    Ok(()) => return,
                    Err(error) => error.to_string(),
                }
            }
            Ok(Came::ToEntry(process, tracee)) => {
                if process.is_alive() {
                    self.others().extend(program_of(pid));
                }
                match tracee.detach(0) {
                    Ok(()) => return self.tell_runs(pid),
                    Err(error) => error.to_string(),
                }
            }
            Ok(Came::Left) => return self.tell_runs(pid),
            Ok(Came::ToItsEnd { is_certain: true }) => return,
            Ok(Came::ToItsEnd { is_certain: false }) => "it ended too soon".to_owned(),
            Ok(Came::Past(why)) => why,
            Err(error) => error.to_string(),
        };
        self.tell_late(pid, late);
    }

    /// Whether the program has mapped a CPython by now.
    fn is_python(&self, process: &Process) -> bool {
        let files = process.mappings().map(|mappings| mappings.files).unwrap_or_default();
        files.iter().any(|file| {
            let known = self.pythons().get(&file.identity).copied();
            known.unwrap_or_else(|| {
                let open = file.open(process).ok();
                let found =
                    open.and_then(|open| interpreter::identify(open.file(), &file.path_in_process).ok());
                // If the process has ended, we could not read the file, and know nothing about the file.
                let Some(found) = found else { return false };
                self.pythons().insert(file.identity, found.is_some());
                found.is_some()
            })
        })
    }

    fn others(&self) -> MutexGuard<'_, HashSet<(u64, u64)>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pythons(&self) -> MutexGuard<'_, HashMap<FileIdentity, bool>> {
        self.pythons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Device and inode of the program that a process executes; `None` for a dynamic loader that was started to
/// run another program.
fn program_of(pid: Pid) -> Option<(u64, u64)> {
    let link = format!("/proc/{pid}/exe");
    let path = fs::read_link(&link).ok()?;
    if path.file_name()?.as_encoded_bytes().starts_with(b"ld") {
        return None;
    }
    let program = fs::metadata(link).ok()?;
    Some((program.dev(), program.ino()))
}

fn be_urgent() {
    if let Err(error) = priority::urgent() {
        tracing::debug!("threads that wait for execs have no real-time priority: {error}");
    }
}
