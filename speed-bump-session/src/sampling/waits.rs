//! What threads wait for: locks and processors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::unix::fs::FileExt as _,
};

use rustix::fs::OFlags;

use super::profile::{ThreadOf, ThreadSeen};
use crate::{
    process::{Process, scheduling::ThreadTimes},
    units::Nanos,
};

/// The most threads, over all processes. Each thread has two open files.
const THREADS: usize = 128;
/// The most locks of a thread that we count.
const LOCKS: usize = 64;
/// The most bytes of a thread's file `syscall` in /proc.
const TEXT: usize = 256;
/// The number of `futex` (include/uapi/asm-generic/unistd.h, arch/x86/entry/syscalls/syscall_64.tbl).
/// `futex_waitv` takes a list of futexes, which we do not read.
const FUTEX: u64 = if cfg!(target_arch = "x86_64") { 202 } else { 98 };

/// A thread whose waits we sample.
#[derive(Debug)]
struct Waiting {
    call: Option<File>,
    times: Option<File>,
    first: Option<ThreadTimes>,
    latest: Option<ThreadTimes>,
    locks: BTreeSet<u64>,
}

/// The waits of threads, over all processes.
#[derive(Debug, Default)]
pub(super) struct Waits {
    threads: BTreeMap<ThreadOf, Waiting>,
}

impl Waits {
    /// Updates the list of a process's threads, and reads their times.
    pub(super) fn look_again(&mut self, process: &Process) {
        for thread in process.thread_ids().unwrap_or_default() {
            let of = ThreadOf { process: process.pid(), thread };
            if !self.threads.contains_key(&of) && self.threads.len() < THREADS {
                let open =
                    |name: &str| process.open_entry(&format!("task/{thread}/{name}"), OFlags::RDONLY).ok();
                let times = open("schedstat");
                let first = times.as_ref().and_then(ThreadTimes::read);
                let call = open("syscall");
                self.threads.insert(of, Waiting { call, times, first, latest: None, locks: BTreeSet::new() });
            }
        }
    }

    /// Samples what each thread waits for at the moment.
    pub(super) fn look(&mut self) {
        for waiting in self.threads.values_mut().filter(|of| of.locks.len() < LOCKS) {
            let Some(file) = &waiting.call else { continue };
            let mut text = [0; TEXT];
            // For a thread that has ended, there is nothing to read.
            let read = file.read_at(&mut text, 0).unwrap_or(0);
            let call = text.get(..read).and_then(|text| str::from_utf8(text).ok());
            waiting.locks.extend(call.and_then(futex));
        }
    }

    /// Reads the times of all threads now.
    pub(super) fn take_times(&mut self) {
        for waiting in self.threads.values_mut() {
            // A thread that has ended keeps its last times.
            let now = waiting.times.as_ref().and_then(ThreadTimes::read);
            waiting.latest = now.or(waiting.latest);
        }
    }

    /// The results.
    pub(super) fn seen(mut self, threads: &mut BTreeMap<ThreadOf, ThreadSeen>) {
        self.take_times();
        for (of, waiting) in self.threads {
            let seen = threads.entry(of).or_default();
            if let Some((first, latest)) = waiting.first.zip(waiting.latest) {
                seen.ran = Nanos(latest.ran.0.saturating_sub(first.ran.0));
                seen.waited = Nanos(latest.waited.0.saturating_sub(first.waited.0));
            }
            seen.locks = waiting.locks;
        }
    }
}

/// The address of the futex on which a thread waits, from its file `syscall` (proc_pid_syscall(5)).
fn futex(call: &str) -> Option<u64> {
    let mut fields = call.split_ascii_whitespace();
    let number: u64 = fields.next()?.parse().ok()?;
    let address = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
    (number == FUTEX).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_futex_is_told_from_other_calls() {
        let call = |number: u64| format!("{number} 0x7f00aa10 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f01\n");
        assert_eq!(futex(&call(FUTEX)), Some(0x7f00_aa10));
        assert_eq!(futex(&call(0)), None);
        for text in ["", "running\n", "-1 0x7ffd 0x7f01\n", "202", "202 zero", "202 0x"] {
            assert_eq!(futex(text), None, "{text}");
        }
    }
}
