//! For how long a process's threads ran, and waited for a processor that others had.

use std::{collections::BTreeMap, io::Read as _};

use rustix::fs::OFlags;

use super::Process;
use crate::units::{Nanos, Pid};

/// Threads that are looked at: more than a service has.
const THREADS: usize = 4_096;
/// Bytes of /proc/PID/task/TID/schedstat: three numbers.
const BYTES: u64 = 128;

/// A thread's times since it began, by /proc/PID/task/TID/schedstat
/// (Documentation/scheduler/sched-stats.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// It had a processor.
    pub ran: Nanos,
    /// It could have run, and others had it.
    pub waited: Nanos,
}

impl Process {
    /// The times of its threads; empty where they cannot be read, or the process has ended.
    pub fn thread_times(&self) -> BTreeMap<Pid, ThreadTimes> {
        let threads = self.thread_ids().unwrap_or_default();
        let times = |thread: Pid| {
            let file = self.open_entry(&format!("task/{thread}/schedstat"), OFlags::RDONLY).ok()?;
            let mut text = String::new();
            file.take(BYTES).read_to_string(&mut text).ok()?;
            Some((thread, parse(&text)?))
        };
        threads.into_iter().take(THREADS).filter_map(times).collect()
    }
}

fn parse(text: &str) -> Option<ThreadTimes> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    // A kernel without CONFIG_SCHED_INFO says only zeros.
    (ran > 0 || waited > 0).then_some(ThreadTimes { ran: Nanos(ran), waited: Nanos(waited) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_first_two_numbers_count() {
        let times = ThreadTimes { ran: Nanos(12), waited: Nanos(34) };
        assert_eq!(parse("12 34 5\n"), Some(times));
        for text in ["", "12", "x 3 4", "0 0 0", "12 -4 5", "99999999999999999999 1 1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn our_own_threads_have_run() {
        let own = Process::open(Pid::own());
        // Our own process is no target.
        let Ok(own) = own else { return };
        assert!(own.thread_times().values().any(|times| times.ran > Nanos(0)));
    }
}
