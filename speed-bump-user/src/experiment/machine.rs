//! The machine around an experiment: load of the processors, threads of the service, clocks.

use std::{collections::BTreeSet, fs};

use super::record::Around;
use crate::{
    process::Process,
    sys::clock::{self, ClockId},
    units::Pid,
};

/// Time of the machine's processors since boot, in ticks, from /proc/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    busy: u64,
    all: u64,
}

impl ProcessorTime {
    /// Reads the present values; `None` if the kernel does not report them.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are within user (proc(5)).
        let all = ticks.get(..8)?.iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
        let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
        Some(Self { busy: all.saturating_sub(idle), all })
    }

    /// The share of the time since `earlier` in which the processors worked.
    pub(crate) fn busy_since(&self, earlier: &Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        Some(self.busy.saturating_sub(earlier.busy) as f64 / all as f64)
    }
}

/// The machine and the service at one time.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    roots: Vec<Pid>,
    processes: BTreeSet<Pid>,
    threads: BTreeSet<Pid>,
    busy: Option<ProcessorTime>,
    /// The time of day less the time since boot without suspension, in ns.
    offset: i128,
    /// How long the machine was suspended since boot, in ns.
    suspended: i128,
}

impl Surroundings {
    /// Reads the present state of the machine, of these processes and their descendants. Leaves out what
    /// cannot be read.
    pub(crate) fn now(roots: &[Pid], children: bool) -> Self {
        let mut processes = BTreeSet::from_iter(roots.iter().copied());
        if children {
            let opened = roots.iter().filter_map(|root| Process::open(*root).ok());
            let below = opened.filter_map(|root| root.descendants().ok()).flat_map(|of| of.processes);
            processes.extend(below.map(|process| process.pid()));
        }
        let threads = processes.iter().flat_map(|of| threads(*of)).collect();
        let monotonic = ns(ClockId::Monotonic);
        Self {
            roots: roots.to_vec(),
            processes,
            threads,
            busy: ProcessorTime::now(),
            offset: ns(ClockId::Realtime) - monotonic,
            suspended: ns(ClockId::Boottime) - monotonic,
        }
    }

    /// The changes since then.
    pub(crate) fn until_now(&self, children: bool) -> Around {
        let now = Self::now(&self.roots, children);
        let count = |one: &BTreeSet<Pid>, other: &BTreeSet<Pid>| one.difference(other).count();
        let ns = |difference: i128| i64::try_from(difference).unwrap_or(i64::MAX);
        Around {
            processors_busy: now.busy.zip(self.busy).and_then(|(now, before)| now.busy_since(&before)),
            processes_came: count(&now.processes, &self.processes),
            processes_went: count(&self.processes, &now.processes),
            threads_came: count(&now.threads, &self.threads),
            threads_went: count(&self.threads, &now.threads),
            clock_step_ns: ns(now.offset - self.offset),
            suspended_ns: ns(now.suspended - self.suspended),
        }
    }
}

fn threads(process: Pid) -> Vec<Pid> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn ns(clock: ClockId) -> i128 {
    i128::from(clock::read(clock).0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn busy_is_everything_but_idle_and_waiting() {
        let of = |text: &str| ProcessorTime::parse(text).unwrap();
        let earlier = of("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2\n");
        let later = of("cpu  150 10 60 820 60 5 5 10 0 0\n");
        assert_eq!(later.busy_since(&earlier), Some(0.75));
        assert_eq!(earlier.busy_since(&earlier), None);
        for text in ["", "cpu  1 2 3", "intr 1", "cpu  a b c d e f g h"] {
            assert_eq!(ProcessorTime::parse(text), None, "{text}");
        }
    }

    #[test]
    fn new_threads_are_counted() {
        let own = std::process::id().to_string().parse().unwrap();
        let before = Surroundings::now(&[own], false);
        let (end, until) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || until.recv().is_err());
        let around = before.until_now(false);
        drop(end);
        assert!(thread.join().unwrap());
        // Other tests start threads too.
        assert!(around.threads_came >= 1, "{around:?}");
        assert_eq!((around.processes_came, around.processes_went), (0, 0));
        assert!(around.suspended_ns.abs() < 1_000_000, "{around:?}");
    }

    #[test]
    fn this_machine_reports_its_load() {
        assert!(ProcessorTime::now().unwrap().all > 0);
    }
}
