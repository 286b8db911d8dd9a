//! The results of sampling.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use crate::units::{Nanos, Pid};

/// The most threads of a function that we report.
pub(super) const THREADS_TOLD: usize = 64;

/// With fewer ticks or samples than this we compute no share.
const MIN: u64 = 10;
/// This many samples miss a thread by chance only once in 150 times.
const LOOKS_MISSED: f64 = 5.0;
/// The time of a tick, if there is no clock.
const TICK_NS: u64 = 10_000_000;

/// `None` where there are too few.
fn share(part: u64, all: u64) -> Option<f64> {
    (all >= MIN).then(|| part as f64 / all as f64)
}

/// What was sampled in processes over a span of time.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Length of the span.
    pub span: Nanos,
    /// Number of stack samples.
    pub ticks: u64,
    /// The results for each thread.
    pub threads: BTreeMap<ThreadOf, ThreadSeen>,
    /// The processes that run a CPython.
    pub interpreters: BTreeMap<Pid, InterpreterSeen>,
    /// By own samples, the most first.
    pub functions: Vec<FunctionSeen>,
    /// The Python stacks that were read, by thread.
    pub stacks: Vec<StackSeen>,
    /// Number of Python stacks that were read.
    pub samples: u64,
    /// Number of stacks that made no sense, since they changed during the read.
    pub dropped: u64,
    /// Of the stacks that were read, those that end in a function that is left out, by reason.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// Samples of threads that were skipped, for lack of time or room.
    pub missed: u64,
    /// How long threads with stacks ran.
    pub ran: Nanos,
    /// The part of that time that belongs to no function: for stacks that made no sense, or functions that
    /// are left out.
    pub ran_unattributed: Nanos,
    /// Ticks of the processors' clocks for these processes; `None` without such a clock.
    pub clock: Option<ClockSeen>,
    /// Processor time of the sampling itself.
    pub own_cost: Nanos,
    /// What could not be sampled, and why.
    pub remarks: Vec<String>,
}

/// A thread and its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadOf {
    /// PID of its process.
    pub process: Pid,
    /// Its own id.
    pub thread: Pid,
}

/// Why a Python function is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// Its name or its file is empty: no target can select it.
    NoName,
    /// Its name or its file is longer than [`NAME_BYTES`](crate::bounds::NAME_BYTES): a target's line has no
    /// room for it.
    TooLong,
    /// There are too many functions, or bytes of names.
    TooMany,
}

impl LeftOut {
    /// A description of such functions.
    pub fn what(self) -> &'static str {
        match self {
            Self::NoName => "functions whose name or file is empty",
            Self::TooLong => "functions whose name or file is longer than 4 KiB",
            Self::TooMany => "functions beyond the first 65,536, or beyond the first 32 MiB of names",
        }
    }
}

/// A Python stack of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSeen {
    /// The thread.
    pub thread: ThreadOf,
    /// The functions on it, the innermost first, by their place in [`Profile::functions`].
    pub functions: Vec<u32>,
    /// Samples in which the thread had a processor, or waited for one.
    pub works: u64,
    /// Samples in which it waited, by what it waited in.
    pub waits: BTreeMap<&'static str, u64>,
}

/// The interpreter of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpreterSeen {
    /// Whether only one thread at a time executes Python code.
    pub has_gil: bool,
    /// Folders in which its standard library may be, by where it and its modules lie.
    pub standard_library: Vec<PathBuf>,
    /// Address of its state.
    pub(super) runtime: u64,
}

impl InterpreterSeen {
    /// Bytes from there on that hold its own locks: `_PyRuntime` has the GIL, and is smaller than 1 MiB.
    const OWN: u64 = 1 << 20;

    /// Whether a futex belongs to the interpreter itself, as the GIL's does.
    pub fn is_own_lock(&self, futex: u64) -> bool {
        futex.checked_sub(self.runtime).is_some_and(|offset| offset < Self::OWN)
    }
}

/// The samples of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSeen {
    /// Samples of its stack; 0 if it has no Python stack.
    pub ticks: u64,
    /// How long it ran in that time.
    pub running: Nanos,
    /// Ticks of a processor's clock while it ran on that processor.
    pub clock: u64,
    /// How long it ran in all, if known.
    pub ran: Nanos,
    /// How long it waited for a processor, if known.
    pub waited: Nanos,
    /// Addresses of futexes that it waited on: locks, and waits on queues.
    pub locks: BTreeSet<u64>,
}

/// A function with samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSeen {
    /// The file: by its name in a Python program, or the one that the process maps.
    pub file: PathBuf,
    /// Its qualified name; its plain name before 3.11; or its symbol.
    pub name: String,
    /// The line of its definition; `None` for native functions.
    pub line: Option<u32>,
    /// Samples in which it was the innermost function: of stacks, or ticks of the processors' clocks for a
    /// native function.
    pub own: u64,
    /// How long their threads had run since the samples before.
    pub running: Nanos,
    /// Samples in which it was anywhere on the stack; for a native function, the same as `own`.
    pub anywhere: u64,
    /// How long their threads had run since the samples before.
    pub anywhere_running: Nanos,
    /// Whether the name is qualified; Python names before 3.11 are not.
    pub is_qualified: bool,
    /// Whether it belongs to the C library or an allocator: a delay there gives no result that a user could
    /// act on. Its samples are in [`ClockSeen::elsewhere`] too.
    pub is_everybodys: bool,
    /// The average depth of the stack above it: 0 is the outermost.
    pub depth: u32,
    /// Own samples by thread, and 0 if it was only on the stack; for at most 64 threads.
    pub threads: BTreeMap<ThreadOf, u64>,
}

/// Ticks of the processors' clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockSeen {
    /// Ticks of a processor per second.
    pub rate: u64,
    /// Ticks for these processes.
    pub samples: u64,
    /// Those of no function, by what the processes executed.
    pub elsewhere: BTreeMap<String, u64>,
    /// Those in the Python interpreter's own code, which executes Python functions.
    pub interpreter: BTreeMap<ThreadOf, u64>,
}

impl Profile {
    /// Stack samples per second.
    pub fn rate(&self) -> f64 {
        if self.span.0 == 0 { 0.0 } else { self.ticks as f64 * 1e9 / self.span.0 as f64 }
    }

    /// The share of the Python interpreter's time that belongs to no sampled function: of threads whose
    /// stacks were not found, and of stacks that could not be read or end in functions that are left out.
    /// `None` with too few samples.
    pub fn unattributed(&self) -> Option<f64> {
        let unseen = match &self.clock {
            Some(clock) => self.unseen_ticks(clock),
            None => self.unseen_time(),
        };
        let left_out: u64 = self.left_out.values().sum();
        let no_functions = self.dropped + self.missed + left_out;
        let of_looks = share(no_functions, self.samples + self.dropped + self.missed);
        // Waiting threads have stacks too, and those can hide running ones.
        let of_time = share(self.ran_unattributed.0 / TICK_NS, self.ran.0 / TICK_NS);
        let unreadable = of_looks.into_iter().chain(of_time).max_by(f64::total_cmp);
        let (unseen, unreadable) = match (unseen, unreadable) {
            (None, None) => return None,
            (unseen, unreadable) => (unseen.unwrap_or(0.0), unreadable.unwrap_or(0.0)),
        };
        Some(unseen + (1.0 - unseen) * unreadable)
    }

    /// The samples that belong to no reported function, in words.
    pub(super) fn not_told(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(|(why, samples)| {
            format!("{samples} of {} stacks end in {}: those are left out", self.samples, why.what())
        });
        let missed = (self.missed > 0).then(|| {
            let looks = self.samples + self.dropped + self.missed;
            format!("{} of {looks} looks at threads were left out, as there are too many", self.missed)
        });
        left_out.chain(missed).collect()
    }

    /// Of the ticks in the interpreter's code, those of threads without a stack.
    fn unseen_ticks(&self, clock: &ClockSeen) -> Option<f64> {
        let looks = self.rate() / clock.rate.max(1) as f64;
        let is_seen = |of: &ThreadOf, ticks: u64| {
            let has_stack = self.threads.get(of).is_some_and(|seen| seen.ticks > 0);
            // A short-lived thread may have been missed while others like it were not.
            has_stack || self.has_stacks(of.process) && (ticks as f64 * looks) < LOOKS_MISSED
        };
        let ticks = &clock.interpreter;
        let unseen = ticks.iter().filter(|(of, ticks)| !is_seen(of, **ticks)).map(|(_, ticks)| ticks);
        share(unseen.sum(), ticks.values().sum())
    }

    /// Without a clock: of the time that processes with an interpreter ran, that of processes without any
    /// stack. A thread without one may not execute Python.
    fn unseen_time(&self) -> Option<f64> {
        let (mut unseen, mut all) = (0, 0);
        for (of, seen) in self.threads.iter().filter(|(of, _)| self.interpreters.contains_key(&of.process)) {
            all += seen.ran.0;
            unseen += if self.has_stacks(of.process) { 0 } else { seen.ran.0 };
        }
        share(unseen / TICK_NS, all / TICK_NS)
    }

    /// Whether any stack of a process was sampled.
    fn has_stacks(&self, process: Pid) -> bool {
        let first = Pid::FIRST;
        let mut threads = self.threads.range(ThreadOf { process, thread: first }..);
        threads.by_ref().take_while(|(of, _)| of.process == process).any(|(_, seen)| seen.ticks > 0)
    }

    /// A function's share of the time, over all threads: 1 is one thread all the time.
    pub fn share(&self, function: &FunctionSeen) -> f64 {
        let all = match function.line {
            Some(_) => self.ticks as f64,
            None => self.clock.as_ref().map_or(0.0, |clock| clock.rate as f64) * self.span.0 as f64 / 1e9,
        };
        if all > 0.0 { function.own as f64 / all } else { 0.0 }
    }

    /// Its share of processor time: 1 is one processor all the time.
    pub fn running_share(&self, function: &FunctionSeen) -> f64 {
        function.running.0 as f64 / self.span.0.max(1) as f64
    }
}

impl FunctionSeen {
    /// Adds samples in which it was the innermost function.
    pub(super) fn add(&mut self, thread: ThreadOf, samples: u64, running: Nanos) {
        self.own += samples;
        self.running = self.running + running;
        if self.threads.len() < THREADS_TOLD || self.threads.contains_key(&thread) {
            *self.threads.entry(thread).or_default() += samples;
        }
    }

    /// Processes that it was seen in.
    pub fn processes(&self) -> usize {
        let mut processes: Vec<Pid> = self.threads.keys().map(|of| of.process).collect();
        processes.dedup();
        processes.len()
    }
}
