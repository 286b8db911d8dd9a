//! What the processes of a session wait for. We read this when the session begins and ends. It explains
//! delays that were too long.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use crate::{
    kernel::ProcessorTimes,
    process::{Process, control_group::ControlGroup, scheduling::ThreadTimes},
    stats::inexact::Waited,
    units::{Nanos, Pid},
};

/// The most processes that we read, and the most cgroups around them.
const PROCESSES: usize = 256;
const GROUPS: usize = 256;
/// The most bytes of a cgroup's `cpu.stat`.
const BYTES: u64 = 16 << 10;

/// Waiting times up to one moment. Each time counts from the beginning of its thread, cgroup or machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    threads: BTreeMap<Pid, ThreadTimes>,
    groups: BTreeMap<PathBuf, Nanos>,
    processors: ProcessorTimes,
}

impl Waiting {
    /// Reads the waiting times of these processes now.
    pub(super) fn read<'a>(processes: impl Iterator<Item = &'a Process>) -> Self {
        let mut threads = BTreeMap::new();
        let mut folders = BTreeSet::new();
        for process in processes.take(PROCESSES) {
            threads.extend(process.thread_times());
            let groups = process.control_groups().unwrap_or_default();
            folders.extend(groups.iter().flat_map(ControlGroup::levels));
        }
        let groups = throttled(folders.into_iter().take(GROUPS));
        Self { threads, groups, processors: ProcessorTimes::read() }
    }

    /// Reads the waiting times now, for the processes that still exist, and for the cgroups of this reading.
    pub(super) fn later<'a>(&self, processes: impl Iterator<Item = &'a Process>) -> Self {
        let mut later = Self::read(processes);
        // A cgroup exists for a while after its processes have ended.
        let gone = self.groups.keys().filter(|folder| !later.groups.contains_key(*folder));
        let gone = throttled(gone.cloned().collect::<Vec<_>>().into_iter());
        later.groups.extend(gone);
        later
    }

    /// How long the threads that still exist have run since an earlier reading.
    pub(super) fn ran_since(&self, earlier: &Self) -> Nanos {
        let ran = self.threads.iter().map(|(thread, times)| {
            let before = earlier.threads.get(thread).copied().unwrap_or_default();
            times.ran.0.saturating_sub(before.ran.0)
        });
        Nanos(ran.fold(0, u64::saturating_add))
    }

    /// The waiting times since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Waited {
        let processors = self.processors.since(earlier.processors);
        let (mut ran, mut waited) = (0_u64, 0_u64);
        for (thread, times) in &self.threads {
            // A thread that began after the earlier reading had waited for nothing before.
            let before = earlier.threads.get(thread).copied().unwrap_or_default();
            ran = ran.saturating_add(times.ran.0.saturating_sub(before.ran.0));
            waited = waited.saturating_add(times.waited.0.saturating_sub(before.waited.0));
        }
        let for_quota = self.groups.iter().fold(0_u64, |sum, (folder, throttled)| {
            let before = earlier.groups.get(folder).copied().unwrap_or_default();
            sum.saturating_add(throttled.0.saturating_sub(before.0))
        });
        // If the processes have ended, we use the figures of the whole machine.
        let for_processor = if self.threads.is_empty() { processors.lacking } else { Nanos(waited) };
        let part = if self.threads.is_empty() { 1.0 } else { ran as f64 / processors.busy.0.max(1) as f64 };
        let stolen = processors.stolen.0 as f64 * part.min(1.0);
        Waited { for_processor, for_hypervisor: Nanos(stolen as u64), for_quota: Nanos(for_quota) }
    }
}

/// For cgroups with a limit: how long they have waited for their next share of processor time.
fn throttled(folders: impl Iterator<Item = PathBuf>) -> BTreeMap<PathBuf, Nanos> {
    let of = |folder: PathBuf| {
        let text = read(&folder.join("cpu.stat"))?;
        Some((folder, throttled_in(&text)?))
    };
    folders.filter_map(of).collect()
}

fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `throttled_usec` of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst), or `throttled_time` of v1, in ns
/// (Documentation/scheduler/sched-bwc.rst).
fn throttled_in(text: &str) -> Option<Nanos> {
    text.lines().find_map(|line| {
        let (name, number) = line.split_once(' ')?;
        let unit = match name {
            "throttled_usec" => 1_000,
            "throttled_time" => 1,
            _ => return None,
        };
        Some(Nanos(number.trim().parse::<u64>().ok()?.saturating_mul(unit)))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn waiting(threads: &[(i32, u64, u64)], throttled: u64, processors: [u64; 3]) -> Waiting {
        let threads = threads.iter().map(|(thread, ran, waited)| {
            (Pid::new(*thread).unwrap(), ThreadTimes { ran: Nanos(*ran), waited: Nanos(*waited), began: 1 })
        });
        let [busy, stolen, lacking] = processors.map(Nanos);
        Waiting {
            threads: threads.collect(),
            groups: BTreeMap::from([(PathBuf::from("/cg/a"), Nanos(throttled))]),
            processors: ProcessorTimes { busy, stolen, lacking },
        }
    }

    #[test]
    fn waiting_is_the_difference_of_what_threads_and_groups_have() {
        let before = waiting(&[(1, 100, 10), (2, 50, 5)], 7, [1_000, 0, 0]);
        let after = waiting(&[(1, 300, 40), (3, 100, 6)], 19, [1_600, 60, 900]);
        let waited = after.since(&before);
        // The threads did half of the work, so half of the stolen time is theirs.
        let expected = Waited { for_processor: Nanos(36), for_hypervisor: Nanos(30), for_quota: Nanos(12) };
        assert_eq!(waited, expected);
        // The third thread began after the first reading.
        assert_eq!(after.ran_since(&before), Nanos(300));
    }

    #[test]
    fn of_processes_that_are_gone_the_machine_tells() {
        let before = waiting(&[(1, 100, 10)], 7, [1_000, 10, 100]);
        let after = waiting(&[], 7, [1_600, 60, 900]);
        let expected = Waited { for_processor: Nanos(800), for_hypervisor: Nanos(50), for_quota: Nanos(0) };
        assert_eq!(after.since(&before), expected);
    }

    #[test]
    fn nonsense_is_nothing_waited_for() {
        let most = waiting(&[(1, u64::MAX, u64::MAX)], u64::MAX, [u64::MAX; 3]);
        assert_eq!(Waiting::default().since(&most), Waited::default());
        assert_eq!(most.since(&Waiting::default()).for_quota, Nanos(u64::MAX));
        assert_eq!(throttled_in("nr_periods 5\nthrottled_usec 12\n"), Some(Nanos(12_000)));
        assert_eq!(throttled_in("nr_throttled 3\nthrottled_time 12\n"), Some(Nanos(12)));
        for text in ["", "throttled_usec", "throttled_usec x", "throttled_usec -1", "usage_usec 5"] {
            assert_eq!(throttled_in(text), None, "{text}");
        }
    }
}
