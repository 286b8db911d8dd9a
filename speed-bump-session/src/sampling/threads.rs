//! Identifies a thread of a process: by the thread's id in the process's PID namespace, or by the C library's
//! descriptor for the thread.

use std::collections::HashMap;

use rustix::fs::OFlags;

use super::memory::{OfProcess, Source};
use crate::{process::Process, units::Pid};

/// How many bytes at the start of a thread's descriptor we search for the thread's id.
const DESCRIPTION: usize = 1_024;
/// The offset of the id in glibc's `struct pthread` (nptl/descr.h), on x86-64 and on aarch64. Other C
/// libraries have the id elsewhere.
const GLIBC: usize = if cfg!(target_arch = "x86_64") { 720 } else { 208 };

/// The threads of a process, with their ids in our own PID namespace.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// Our own thread id for each id in the process's namespace.
    numbers: HashMap<u64, Pid>,
    /// The offset of the id in the C library's descriptor for a thread.
    number_at: Option<usize>,
}

impl Threads {
    /// Sets the threads.
    pub(super) fn set(&mut self, process: &Process, threads: &[Pid]) {
        let is_inside = process.namespace_pid().is_ok_and(|pid| pid != process.pid());
        let number = |thread: Pid| {
            let inside = is_inside.then(|| inner_number(process, thread)).flatten();
            u64::from(inside.unwrap_or(thread).get().unsigned_abs())
        };
        self.numbers = threads.iter().map(|thread| (number(*thread), *thread)).collect();
    }

    /// The thread with this id in the process's namespace.
    pub(super) fn by_number(&self, number: u64) -> Option<Pid> {
        self.numbers.get(&number).copied()
    }

    /// The thread whose descriptor is at this address (`pthread_self`).
    pub(super) fn by_description<S: Source>(&mut self, source: &mut S, address: u64) -> Option<Pid> {
        let mut bytes = [0; DESCRIPTION];
        // The mapping may end before the descriptor's last bytes.
        let read = source.read(address, &mut bytes);
        let number = |at: usize| {
            let bytes = bytes.get(..read)?.get(at..at + 4)?.try_into().ok()?;
            Some(u64::from(u32::from_ne_bytes(bytes)))
        };
        let known = |at: usize| self.by_number(number(at)?);
        if let Some(at) = self.number_at {
            return known(at);
        }
        let mut places = [GLIBC].into_iter().chain((0..DESCRIPTION).step_by(4));
        let at = places.find(|at| known(*at).is_some())?;
        let thread = known(at);
        self.number_at = Some(at);
        thread
    }
}

/// Finds the present threads of a process by their thread pointers.
#[derive(Debug)]
pub struct ByPointer {
    process: Pid,
    threads: Threads,
}

impl ByPointer {
    /// Takes the threads of this process. There are none if the process has ended.
    pub fn new(process: &Process) -> Self {
        let mut threads = Threads::default();
        threads.set(process, &process.thread_ids().unwrap_or_default());
        Self { process: process.pid(), threads }
    }

    /// PID of the process.
    pub fn process(&self) -> Pid {
        self.process
    }

    /// The thread with this thread pointer.
    pub fn find(&mut self, pointer: u64) -> Option<Pid> {
        self.threads.by_description(&mut OfProcess(self.process), pointer)
    }
}

/// The id of a thread in its own PID namespace.
fn inner_number(process: &Process, thread: Pid) -> Option<Pid> {
    use std::io::Read as _;
    let file = process.open_entry(&format!("task/{thread}/status"), OFlags::RDONLY).ok()?;
    let mut text = Vec::new();
    file.take(16 << 10).read_to_end(&mut text).ok()?;
    crate::process::Status::parse(&text).ok()?.namespace_pids.last().copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The memory of an invented process.
    struct Bytes(Vec<u8>);

    impl Source for Bytes {
        fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize {
            let from = self.0.get(address as usize..).unwrap_or_default();
            let read = from.len().min(buffer.len());
            buffer[..read].copy_from_slice(&from[..read]);
            read
        }
    }

    #[test]
    fn a_thread_is_found_by_its_description() {
        let thread = Pid::new(4_711).unwrap();
        let mut threads = Threads { numbers: HashMap::from([(12, thread)]), number_at: None };
        assert_eq!(threads.by_number(12), Some(thread));
        let mut description = vec![0; 2_000];
        description[GLIBC..GLIBC + 4].copy_from_slice(&12_u32.to_ne_bytes());
        assert_eq!(threads.by_description(&mut Bytes(description.clone()), 0), Some(thread));
        // The id must be at the same offset in each descriptor.
        assert_eq!(threads.by_description(&mut Bytes(description.split_off(4)), 0), None);
        assert_eq!(threads.by_description(&mut Bytes(Vec::new()), 0), None);
    }
}
