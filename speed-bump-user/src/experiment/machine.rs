//! The machine around an experiment: load of the processors, threads of the service, clocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
};

use rustix::fs::OFlags;

use super::record::{Around, ThreadTime};
use crate::{
    process::{Process, scheduling::ThreadTimes},
    sys::clock::{self, ClockId},
    units::{Nanos, Pid},
};

/// The most threads in a record.
const MAX_THREADS: usize = 16;
/// A thread that was busy for a smaller share of the time is not in the record.
const MIN_BUSY: f64 = 0.01;
/// Bytes of a thread's name (`TASK_COMM_LEN`).
const NAME: u64 = 16;

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
    times: BTreeMap<Pid, ThreadTimes>,
    /// Processor time of the processes and of children that they waited for, in ticks.
    ran: u64,
    busy: Option<ProcessorTime>,
    /// The time of day less the time since boot without suspension, in ns.
    offset: i128,
    /// How long the machine was suspended since boot, in ns.
    suspended: i128,
    /// When it was read.
    monotonic: i128,
}

impl Surroundings {
    /// Reads the present state of the machine, of these processes and their descendants. Leaves out what
    /// cannot be read.
    pub(crate) fn now(roots: &[Pid], children: bool) -> Self {
        let mut opened: BTreeMap<Pid, Process> =
            roots.iter().filter_map(|root| Some((*root, Process::open(*root).ok()?))).collect();
        if children {
            let below = opened.values().filter_map(|root| root.descendants().ok());
            let below: Vec<Process> = below.flat_map(|of| of.processes).collect();
            opened.extend(below.into_iter().map(|process| (process.pid(), process)));
        }
        let processes: BTreeSet<Pid> = roots.iter().chain(opened.keys()).copied().collect();
        let threads = processes.iter().flat_map(|of| threads(*of)).collect();
        let ran = opened.values().filter_map(Process::ran_ticks).fold(0, u64::saturating_add);
        let times = opened.values().flat_map(Process::thread_times).collect();
        let monotonic = ns(ClockId::Monotonic);
        Self {
            roots: roots.to_vec(),
            processes,
            threads,
            times,
            ran,
            busy: ProcessorTime::now(),
            offset: ns(ClockId::Realtime) - monotonic,
            suspended: ns(ClockId::Boottime) - monotonic,
            monotonic,
        }
    }

    /// The changes since these surroundings were read, and the busiest threads of the service.
    pub(crate) fn until_now(&self, children: bool) -> (Around, Vec<ThreadTime>) {
        let now = Self::now(&self.roots, children);
        (self.until(&now), self.busiest(&now))
    }

    /// How long each thread had a processor and waited for one, from `self` to `now`.
    fn since<'a>(&'a self, now: &'a Self) -> impl Iterator<Item = (Pid, Nanos, Nanos)> + 'a {
        now.times.iter().map(|(thread, times)| {
            let before = self.times.get(thread).copied().unwrap_or_default();
            let ran = times.ran.0.saturating_sub(before.ran.0);
            (*thread, Nanos(ran), Nanos(times.waited.0.saturating_sub(before.waited.0)))
        })
    }

    fn busiest(&self, now: &Self) -> Vec<ThreadTime> {
        let span = now.monotonic.saturating_sub(self.monotonic).max(1) as f64;
        let mut threads: Vec<ThreadTime> = (self.since(now))
            .map(|(thread, ran, waited)| ThreadTime {
                thread,
                name: String::new(),
                running: (ran.0 as f64 / span).min(1.0),
                waiting: (waited.0 as f64 / span).min(1.0),
            })
            .filter(|of| of.busy() >= MIN_BUSY)
            .collect();
        threads.sort_by(|a, b| b.busy().total_cmp(&a.busy()));
        threads.truncate(MAX_THREADS);
        let mut named: BTreeMap<Pid, String> = BTreeMap::new();
        for process in now.processes.iter().filter_map(|of| Process::open(*of).ok()) {
            let ids = process.thread_ids().unwrap_or_default();
            let wanted = ids.into_iter().filter(|id| threads.iter().any(|of| of.thread == *id));
            named.extend(wanted.filter_map(|id| Some((id, name(&process, id)?))));
        }
        for thread in &mut threads {
            thread.name = named.remove(&thread.thread).unwrap_or_default();
        }
        threads
    }

    fn until(&self, now: &Self) -> Around {
        let (mut ran, mut waited) = (0_u64, 0_u64);
        for (_, of_thread, wait) in self.since(now) {
            (ran, waited) = (ran.saturating_add(of_thread.0), waited.saturating_add(wait.0));
        }
        let wanted = ran.saturating_add(waited);
        let (then, until) = (self.busy, now.busy);
        let processors_busy = until.zip(then).and_then(|(until, then)| until.busy_since(&then));
        // Processes that have ended may have taken any part of the processor time.
        let is_known = self.processes.is_subset(&now.processes);
        let all = until.zip(then).map_or(0, |(until, then)| until.all.saturating_sub(then.all));
        let own = now.ran.saturating_sub(self.ran) as f64 / all.max(1) as f64;
        let others = processors_busy.filter(|_| is_known && all > 0).map(|busy| (busy - own).clamp(0.0, 1.0));
        let count = |one: &BTreeSet<Pid>, other: &BTreeSet<Pid>| one.difference(other).count();
        let ns = |difference: i128| i64::try_from(difference).unwrap_or(i64::MAX);
        Around {
            processors_busy,
            others,
            processor_wait: (wanted > 0).then(|| waited as f64 / wanted as f64),
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

/// What a thread calls itself.
fn name(process: &Process, thread: Pid) -> Option<String> {
    let file = process.open_entry(&format!("task/{thread}/comm"), OFlags::RDONLY).ok()?;
    let mut bytes = Vec::new();
    file.take(NAME).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
}

fn ns(clock: ClockId) -> i128 {
    i128::from(clock::read(clock).0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;

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
        let (around, _) = before.until_now(false);
        drop(end);
        assert!(thread.join().unwrap());
        // Other tests start threads too.
        assert!(around.threads_came >= 1, "{around:?}");
        assert_eq!((around.processes_came, around.processes_went), (0, 0));
        assert!(around.suspended_ns.abs() < 1_000_000, "{around:?}");
    }

    #[test]
    fn a_busy_thread_is_named() {
        let mut child = Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = child.id().to_string().parse().unwrap();
        let before = Surroundings::now(&[pid], false);
        let is_named = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let (around, threads) = before.until_now(false);
            let found = threads.iter().find(|of| of.thread == pid);
            found.is_some_and(|of| of.name == "sh" && of.running > 0.0)
                && around.processor_wait.is_some()
                && around.others.is_some_and(|others| Some(others) < around.processors_busy)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_named);
    }

    #[test]
    fn this_machine_reports_its_load() {
        assert!(ProcessorTime::now().unwrap().all > 0);
    }
}
