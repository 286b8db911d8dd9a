//! How long a process's threads ran, and how long they waited for a processor.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt as _};

use rustix::fs::OFlags;

use super::Process;
use crate::units::{Nanos, Pid};

/// The most threads that we read: a service has fewer.
const THREADS: usize = 4_096;
/// The most bytes that we read of /proc/PID/task/TID/schedstat, which holds three numbers.
const BYTES: usize = 128;

/// A thread's times since it began, from /proc/PID/task/TID/schedstat
/// (Documentation/scheduler/sched-stats.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// How long the thread had a processor.
    pub ran: Nanos,
    /// How long the thread was ready to run, but had no processor.
    pub waited: Nanos,
    /// How often the thread got a processor.
    pub began: u64,
}

impl ThreadTimes {
    /// Reads an open `schedstat`. Returns `None` if the thread has ended, or if the kernel does not fill the
    /// file.
    pub fn read(file: &File) -> Option<Self> {
        let mut text = [0; BYTES];
        let read = file.read_at(&mut text, 0).ok()?;
        parse(str::from_utf8(text.get(..read)?).ok()?)
    }
}

impl Process {
    /// The processor time of the process in clock ticks. This includes its ended threads, and the children
    /// that it waited for. Returns `None` if the process has ended.
    pub fn ran_ticks(&self) -> Option<u64> {
        self.stat().ok().map(|stat| stat.ran)
    }

    /// The times of the process's threads; empty if we cannot read them, or if the process has ended.
    pub fn thread_times(&self) -> BTreeMap<Pid, ThreadTimes> {
        let threads = self.thread_ids().unwrap_or_default();
        let times = |thread: Pid| {
            let file = self.open_entry(&format!("task/{thread}/schedstat"), OFlags::RDONLY).ok()?;
            Some((thread, ThreadTimes::read(&file)?))
        };
        threads.into_iter().take(THREADS).filter_map(times).collect()
    }
}

fn parse(text: &str) -> Option<ThreadTimes> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, waited, began) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    // A kernel without CONFIG_SCHED_INFO writes only zeros.
    (ran > 0 || waited > 0).then_some(ThreadTimes { ran: Nanos(ran), waited: Nanos(waited), began })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn three_numbers_count() {
        let times = ThreadTimes { ran: Nanos(12), waited: Nanos(34), began: 5 };
        assert_eq!(parse("12 34 5\n"), Some(times));
        for text in ["", "12", "12 34", "x 3 4", "0 0 0", "12 -4 5", "99999999999999999999 1 1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn our_own_threads_have_run() {
        let own = Process::open(Pid::own());
        // A `Process` cannot be our own process.
        let Ok(own) = own else { return };
        assert!(own.thread_times().values().any(|times| times.ran > Nanos(0)));
    }
}
