//! Samples what processes execute, many times a second and without stopping the processes. This finds the
//! functions that take time.
//!
//! At equal intervals, we read the Python stacks of all threads from the memory of the processes, whether a
//! thread runs or waits. We sample native functions with the clocks of the processors, which show where the
//! running thread is. The processes lose only the processor time that the sampling itself uses. We bound this
//! time.

mod code;
mod functions;
mod layout;
mod leaves;
mod may;
mod memory;
pub mod profile;
mod stacks;
mod standard_library;
mod state;
pub mod threads;
mod waits;
mod walk;
mod whole_stacks;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use self::{
    leaves::Leaves,
    may::MayGoOn,
    profile::{FunctionSeen, Profile},
    stacks::{Counts, NoStacks, Shared, Stacks},
    waits::Waits,
};
use crate::{
    process::{Process, mapped_file::FileIdentity},
    sys::{
        clock::{self, ClockId, now},
        clock_samples::ProcessorClocks,
        priority::Urgent,
    },
    units::{Nanos, Pid},
};

/// The number of stack samples per second, and of ticks per second of each processor's clock.
const RATE: u64 = 100;
/// The longest time between two samples.
const SLOWEST: Nanos = Nanos(200_000_000);
/// The greatest share of a processor that sampling may use.
const MAX_COST: f64 = 0.015;
/// How often we search for new processes and threads, and check the cost of sampling.
const LOOK_AGAIN: Nanos = Nanos(1_000_000_000);
/// In one of this many samples, we also read what threads wait for. This takes a system call for each thread.
const WAITS: u64 = 10;
/// The most processes that we sample.
const PROCESSES: usize = 1_024;
/// The most processor time for one sample of all stacks. If there was no time for some threads, these come
/// first in the next sample.
const LONGEST: Nanos = Nanos(250_000_000);
/// The sampling thread has real-time priority as long as no sample has taken more processor time than this.
const BRIEF: Nanos = Nanos(10_000_000);
/// The most remarks that we report.
const REMARKS: usize = 100;

/// The error if sampling is impossible.
#[derive(Debug, thiserror::Error)]
#[error("none of the processes can be looked into: {0}")]
pub struct SamplingError(String);

/// Samples processes for a while, with their descendants if `children` is true. We call `go_on` many times a
/// second. Sampling ends when it returns false, or when all processes have ended.
///
/// # Errors
/// We can inspect none of the processes.
pub fn sample(
    pids: &[Pid],
    children: bool,
    time: Duration,
    go_on: impl FnMut() -> bool,
) -> Result<Profile, SamplingError> {
    let mut may = MayGoOn::asking(go_on);
    let mut sampler = Sampler { pids: pids.to_vec(), children, ..Sampler::default() };
    sampler.look_again(&mut may);
    if sampler.followed.is_empty() {
        let why: Vec<String> = sampler.remarks.into_iter().collect();
        return Err(SamplingError(why.join("; ")));
    }
    let mut clocks = match ProcessorClocks::start(RATE) {
        Ok(clocks) => Some(clocks),
        Err(error) => {
            sampler.remarks.insert(format!(
                "native functions cannot be seen: the kernel refuses the clock of its processors ({error}); \
                 that wants CAP_PERFMON, and no seccomp filter"
            ));
            None
        }
    };
    let interval = Nanos(1_000_000_000 / RATE);
    let (begun, cost_before) = (now(), own_time());
    let end = begun + Nanos::from(time);
    let mut pace = Pace { interval, looked_again: begun, cost: cost_before };
    let mut next = begun + interval;
    let mut random = begun.0 | 1;
    let mut is_brief = true;
    while next <= end && may.go_on() {
        // On a busy machine, an ordinary thread would mostly get a processor when the service waits, and so
        // would sample mostly then. So this thread gets real-time priority. But a process can make samples
        // take long, and then nothing else should have to wait for them.
        let urgent = is_brief.then(Urgent::begin);
        std::thread::sleep(Duration::from_nanos(next.0.saturating_sub(now().0)));
        let (at, own_before) = (now(), own_time());
        sampler.look(&mut may);
        is_brief &= own_time().0 - own_before.0 <= BRIEF.0;
        if let Some(Err(error)) = &urgent {
            tracing::debug!("samples come late on a busy machine: {error}");
        }
        drop(urgent);
        let took = Nanos(now().0 - at.0);
        if let Some(clocks) = &mut clocks {
            clocks.read(|sample| sampler.add(sample));
        }
        if at.0 - pace.looked_again.0 >= LOOK_AGAIN.0 {
            pace.adapt(at);
            sampler.look_again(&mut may);
            if sampler.followed.is_empty() {
                break;
            }
        }
        // We do not make up for missed samples, and sampling takes at most half of the time.
        next = (next + varied(pace.interval, &mut random)).max(now() + took);
    }
    let span = Nanos(now().0 - begun.0);
    let own_cost = Nanos(own_time().0 - cost_before.0);
    let clock = clocks.map(|_| RATE);
    Ok(Profile { span, own_cost, ..sampler.seen(clock, &mut may) })
}

/// The interval, made longer or shorter by up to a quarter. So samples do not keep step with the service
/// (xorshift64, Marsaglia 2003).
fn varied(interval: Nanos, random: &mut u64) -> Nanos {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let half = (interval.0 / 2).max(1);
    Nanos(interval.0 - interval.0 / 4 + *random % half)
}

/// The interval between samples, and the cost so far.
struct Pace {
    interval: Nanos,
    looked_again: Nanos,
    cost: Nanos,
}

impl Pace {
    /// Makes the interval longer if sampling costs too much.
    fn adapt(&mut self, at: Nanos) {
        let cost = own_time();
        let share = (cost.0 - self.cost.0) as f64 / (at.0 - self.looked_again.0) as f64;
        self.interval = paced(self.interval, share);
        (self.looked_again, self.cost) = (at, cost);
    }
}

/// The interval at which sampling takes no more than we allow. With the present interval, sampling took
/// `share` of a processor. The interval never becomes shorter again: what has cost too much once may do so
/// again.
fn paced(interval: Nanos, share: f64) -> Nanos {
    if share <= MAX_COST {
        return interval;
    }
    let longer = interval.0 as f64 * share / MAX_COST;
    Nanos((longer as u64).min(SLOWEST.0)).max(interval)
}

/// The processor time that this thread has taken.
fn own_time() -> Nanos {
    clock::read(ClockId::ThreadCPUTime)
}

/// A process that we sample.
#[derive(Debug)]
struct Followed {
    process: Process,
    stacks: Option<Stacks>,
    interpreter: Option<FileIdentity>,
}

/// The state of [`sample`].
#[derive(Debug, Default)]
struct Sampler {
    pids: Vec<Pid>,
    children: bool,
    followed: BTreeMap<Pid, Followed>,
    leaves: Leaves,
    waits: Waits,
    shared: Shared,
    /// The results of processes that have ended.
    seen: Profile,
    /// The first process for which the last sample had no time left.
    first: Option<Pid>,
    ticks: u64,
    clock_of: BTreeMap<profile::ThreadOf, u64>,
    remarks: BTreeSet<String>,
}

impl Sampler {
    /// Finds new processes and threads, and drops those that have ended.
    fn look_again(&mut self, may: &mut MayGoOn<impl FnMut() -> bool>) {
        let ended: Vec<Pid> =
            self.followed.iter().filter(|(_, of)| !of.process.is_alive()).map(|(pid, _)| *pid).collect();
        for pid in ended {
            if let Some(stacks) = self.followed.remove(&pid).and_then(|of| of.stacks) {
                take(&mut self.seen, stacks.end(&mut self.shared));
            }
        }
        let mut new = Vec::new();
        for pid in self.pids.clone() {
            let Some(process) = self.open(pid) else { continue };
            if self.children {
                new.extend(process.descendants().map(|found| found.processes).unwrap_or_default());
            }
            new.push(process);
        }
        for process in new {
            if self.followed.len() == PROCESSES {
                self.remark(format!("only {PROCESSES} processes are sampled"));
                break;
            }
            if !may.go_on() {
                return;
            }
            if !self.followed.contains_key(&process.pid()) {
                self.follow(process);
            }
        }
        for of in self.followed.values_mut() {
            if !may.go_on() {
                return;
            }
            if let Some(stacks) = &mut of.stacks {
                stacks.look_again(&of.process, &mut self.shared);
            }
            self.waits.look_again(&of.process);
        }
        self.waits.take_times();
        self.leaves.look_again();
    }

    fn remark(&mut self, text: String) {
        if self.remarks.len() < REMARKS {
            self.remarks.insert(text);
        }
    }

    fn open(&mut self, pid: Pid) -> Option<Process> {
        match Process::open(pid) {
            Ok(process) => Some(process),
            Err(error) => {
                if !self.followed.contains_key(&pid) && self.ticks == 0 {
                    self.remark(error.to_string());
                }
                None
            }
        }
    }

    fn follow(&mut self, process: Process) {
        let (stacks, interpreter) = match Stacks::open(&process, &mut self.shared) {
            Ok(stacks) => {
                let interpreter = stacks.interpreter;
                (Some(stacks), Some(interpreter))
            }
            Err((NoStacks::NoPython, _)) => (None, None),
            Err((why, interpreter)) => {
                self.remark(format!("process {}: {why}", process.pid()));
                (None, interpreter)
            }
        };
        let seen = stacks.as_ref().map(|stacks| (process.pid(), stacks.of_interpreter()));
        self.seen.interpreters.extend(seen);
        self.followed.insert(process.pid(), Followed { process, stacks, interpreter });
    }

    /// Samples the stacks of all processes.
    fn look(&mut self, may: &mut MayGoOn<impl FnMut() -> bool>) {
        self.ticks += 1;
        let end = own_time() + LONGEST;
        let mut may_go_on = || own_time() < end && may.go_on();
        let first = self.first.take().unwrap_or(Pid::FIRST);
        let order: Vec<Pid> =
            self.followed.range(first..).chain(self.followed.range(..first)).map(|(pid, _)| *pid).collect();
        for pid in order {
            let Some(Followed { process, stacks: Some(stacks), .. }) = self.followed.get_mut(&pid) else {
                continue;
            };
            let is_all = stacks.look(process, &mut self.shared, &mut may_go_on);
            if !is_all && self.first.is_none() {
                self.first = Some(pid);
            }
        }
        if self.ticks.is_multiple_of(WAITS) {
            self.waits.look();
        }
    }

    /// Adds a tick of a processor's clock.
    fn add(&mut self, sample: crate::sys::clock_samples::ClockSample) {
        let Some(of) = self.followed.get(&sample.process) else { return };
        let thread = profile::ThreadOf { process: sample.process, thread: sample.thread };
        *self.clock_of.entry(thread).or_default() += 1;
        self.leaves.add(&of.process, of.interpreter, sample);
    }

    /// The results.
    fn seen(mut self, clock: Option<u64>, may: &mut MayGoOn<impl FnMut() -> bool>) -> Profile {
        let mut profile = self.seen;
        for of in self.followed.into_values() {
            if let Some(stacks) = of.stacks {
                take(&mut profile, stacks.end(&mut self.shared));
            }
        }
        profile.ticks = self.ticks;
        profile.threads = self.shared.ended;
        self.waits.seen(&mut profile.threads);
        for (thread, ticks) in self.clock_of {
            profile.threads.entry(thread).or_default().clock += ticks;
        }
        let (left_out, ran) = self.shared.functions.left_out();
        profile.left_out = left_out;
        profile.ran_unattributed = profile.ran_unattributed + ran;
        let (functions, stacks) = self.shared.functions.seen();
        profile.functions = functions;
        if let Some(rate) = clock {
            let (functions, seen) = self.leaves.seen(rate, &mut || may.go_on());
            profile.functions.extend(functions);
            profile.clock = Some(seen);
        }
        let no_room = stacks.left_out();
        let no_room = (no_room > 0).then(|| {
            format!(
                "{no_room} of {} stacks were left out, as there are too many different ones",
                profile.samples
            )
        });
        profile.remarks = self.remarks.into_iter().chain(profile.not_told()).chain(no_room).collect();
        let mut numbered: Vec<(usize, FunctionSeen)> = profile.functions.into_iter().enumerate().collect();
        numbered.sort_by(|(_, a), (_, b)| {
            b.own.cmp(&a.own).then_with(|| (&a.file, &a.name, a.line).cmp(&(&b.file, &b.name, b.line)))
        });
        let mut places = vec![0; numbered.len()];
        for (place, (number, _)) in (0..).zip(&numbered) {
            if let Some(of) = places.get_mut(*number) {
                *of = place;
            }
        }
        profile.stacks = stacks.seen(&places);
        profile.functions = numbered.into_iter().map(|(_, function)| function).collect();
        profile
    }
}

/// Adds the counts of a process to the profile.
fn take(profile: &mut Profile, counts: Counts) {
    profile.samples += counts.samples;
    profile.dropped += counts.dropped;
    profile.missed += counts.missed;
    profile.ran = profile.ran + counts.ran;
    profile.ran_unattributed = profile.ran_unattributed + counts.ran_dropped;
}

#[cfg(test)]
mod tests;
