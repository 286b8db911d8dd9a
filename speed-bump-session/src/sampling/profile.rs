//! The results of sampling.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use crate::units::{Nanos, Pid};

/// The most threads of a function that we report.
pub(super) const THREADS_TOLD: usize = 64;

/// We compute no share from fewer ticks or samples.
const MIN: u64 = 10;
/// If we expect this many samples of a thread, chance makes us miss it in only one of 150 cases.
const LOOKS_MISSED: f64 = 5.0;
/// The time of a tick if there is no clock.
const TICK_NS: u64 = 10_000_000;

/// The share of a part; `None` if there are too few samples.
fn share(part: u64, all: u64) -> Option<f64> {
    (all >= MIN).then(|| part as f64 / all as f64)
}

/// The results of sampling processes over a span of time.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The length of the span.
    pub span: Nanos,
    /// The number of stack samples.
    pub ticks: u64,
    /// The results for each thread.
    pub threads: BTreeMap<ThreadOf, ThreadSeen>,
    /// The processes that run a CPython.
    pub interpreters: BTreeMap<Pid, InterpreterSeen>,
    /// The functions, sorted by their own samples, the most first.
    pub functions: Vec<FunctionSeen>,
    /// The Python stacks that we read, for each thread.
    pub stacks: Vec<StackSeen>,
    /// The number of Python stacks that we read.
    pub samples: u64,
    /// The number of stacks that made no sense, because they changed while we read them.
    pub dropped: u64,
    /// The number of stacks that end in a function that we left out, by reason.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// The number of samples of threads that we skipped for lack of time or room.
    pub missed: u64,
    /// How long threads with stacks ran.
    pub ran: Nanos,
    /// How much of that time belongs to no function: the stacks made no sense, or end in functions that we
    /// left out.
    pub ran_unattributed: Nanos,
    /// The ticks of the processors' clocks in these processes; `None` if there is no such clock.
    pub clock: Option<ClockSeen>,
    /// The processor time that the sampling itself took.
    pub own_cost: Nanos,
    /// What we could not sample, and why.
    pub remarks: Vec<String>,
}

/// A thread and its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadOf {
    /// PID of the thread's process.
    pub process: Pid,
    /// The id of the thread.
    pub thread: Pid,
}

/// Why we left out a Python function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// The function's name or file is empty: no target can select it.
    NoName,
    /// The function's name or file is longer than [`NAME_BYTES`](crate::bounds::NAME_BYTES): a line of
    /// targets has no room for it.
    TooLong,
    /// There are too many functions, or bytes of names.
    TooMany,
}

impl LeftOut {
    /// A description of the functions that we leave out for this reason.
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
    /// The functions on the stack, the innermost first, as positions in [`Profile::functions`].
    pub functions: Vec<u32>,
    /// The number of samples in which the thread had a processor, or waited for one.
    pub works: u64,
    /// The number of samples in which the thread waited for something else, by what it waited for.
    pub waits: BTreeMap<&'static str, u64>,
}

/// Facts about the interpreter of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpreterSeen {
    /// Whether only one thread at a time executes Python code.
    pub has_gil: bool,
    /// Folders that may contain the interpreter's standard library, as the paths of its files suggest.
    pub standard_library: Vec<PathBuf>,
    /// The address of the interpreter's `_PyRuntime`.
    pub(super) runtime: u64,
}

impl InterpreterSeen {
    /// The size of the region from that address on that contains the interpreter's own locks: `_PyRuntime`
    /// contains the GIL, and is smaller than 1 MiB.
    const OWN: u64 = 1 << 20;

    /// Whether a futex belongs to the interpreter itself, such as the GIL.
    pub fn is_own_lock(&self, futex: u64) -> bool {
        futex.checked_sub(self.runtime).is_some_and(|offset| offset < Self::OWN)
    }
}

/// The samples of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSeen {
    /// The number of samples of the thread's stack; 0 if the thread has no Python stack.
    pub ticks: u64,
    /// How long the thread ran between these samples.
    pub running: Nanos,
    /// The number of ticks of the processors' clocks while the thread ran.
    pub clock: u64,
    /// How long the thread ran in total, if known.
    pub ran: Nanos,
    /// How long the thread waited for a processor, if known.
    pub waited: Nanos,
    /// The addresses of futexes on which the thread waited: locks and queues.
    pub locks: BTreeSet<u64>,
}

/// A function that occurs in samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSeen {
    /// The file of the function: its name in the Python program, or the file that the process maps.
    pub file: PathBuf,
    /// The qualified name, the plain name before 3.11, or the symbol.
    pub name: String,
    /// The line of the definition; `None` for native functions.
    pub line: Option<u32>,
    /// The number of samples in which the function was the innermost. These are stack samples, or, for a
    /// native function, ticks of the processors' clocks.
    pub own: u64,
    /// For each of these samples, the time for which the thread had run since its last sample; added up.
    pub running: Nanos,
    /// The number of samples in which the function was anywhere on the stack. For a native function, this
    /// equals `own`.
    pub anywhere: u64,
    /// For each of these samples, the time for which the thread had run since its last sample; added up.
    pub anywhere_running: Nanos,
    /// Whether the name is qualified. Python names before 3.11 are not.
    pub is_qualified: bool,
    /// Whether the function belongs to the C library or an allocator. If so, a delay there gives no result
    /// that a user could act on. The function's samples are also in [`ClockSeen::elsewhere`].
    pub is_everybodys: bool,
    /// The average number of functions outside of this function on the stack: its caller, the caller of that,
    /// and so on. 0 means that the function is the outermost.
    pub depth: u32,
    /// For each thread, the function's own samples: 0 if the function was only on the stack. At most 64
    /// threads.
    pub threads: BTreeMap<ThreadOf, u64>,
}

/// The ticks of the processors' clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockSeen {
    /// The number of ticks per second of each processor's clock.
    pub rate: u64,
    /// The number of ticks in these processes.
    pub samples: u64,
    /// The ticks that belong to no function, by a description of the executed code.
    pub elsewhere: BTreeMap<String, u64>,
    /// The ticks in the Python interpreter's own code, which executes Python functions.
    pub interpreter: BTreeMap<ThreadOf, u64>,
}

impl Profile {
    /// The number of stack samples per second.
    pub fn rate(&self) -> f64 {
        if self.span.0 == 0 { 0.0 } else { self.ticks as f64 * 1e9 / self.span.0 as f64 }
    }

    /// The share of the Python interpreter's time that belongs to no sampled function. We did not find the
    /// stacks of its threads, could not read them, or left out the functions at their ends. `None` if there
    /// are too few samples.
    pub fn unattributed(&self) -> Option<f64> {
        let unseen = match &self.clock {
            Some(clock) => self.unseen_ticks(clock),
            None => self.unseen_time(),
        };
        let left_out: u64 = self.left_out.values().sum();
        let no_functions = self.dropped + self.missed + left_out;
        let of_looks = share(no_functions, self.samples + self.dropped + self.missed);
        // Waiting threads have stacks too, and the many samples of these can hide running threads. So we also
        // compute the share of running time.
        let of_time = share(self.ran_unattributed.0 / TICK_NS, self.ran.0 / TICK_NS);
        let unreadable = of_looks.into_iter().chain(of_time).max_by(f64::total_cmp);
        let (unseen, unreadable) = match (unseen, unreadable) {
            (None, None) => return None,
            (unseen, unreadable) => (unseen.unwrap_or(0.0), unreadable.unwrap_or(0.0)),
        };
        Some(unseen + (1.0 - unseen) * unreadable)
    }

    /// Sentences about the samples that belong to no reported function.
    pub(super) fn not_told(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(|(why, samples)| {
            format!("{samples} of {} stacks end in {}: those are left out", self.samples, why.what())
        });
        let missed = (self.missed > 0).then(|| {
            let looks = self.samples + self.dropped + self.missed;
            format!("{} of {looks} samples of threads were left out: there are too many threads", self.missed)
        });
        left_out.chain(missed).collect()
    }

    /// The share of the ticks in the interpreter's code that belongs to threads without a stack.
    fn unseen_ticks(&self, clock: &ClockSeen) -> Option<f64> {
        let looks = self.rate() / clock.rate.max(1) as f64;
        let is_seen = |of: &ThreadOf, ticks: u64| {
            let has_stack = self.threads.get(of).is_some_and(|seen| seen.ticks > 0);
            // If we found stacks of other threads in the process, we may have missed a thread by chance,
            // because it lived only briefly.
            has_stack || self.has_stacks(of.process) && (ticks as f64 * looks) < LOOKS_MISSED
        };
        let ticks = &clock.interpreter;
        let unseen = ticks.iter().filter(|(of, ticks)| !is_seen(of, **ticks)).map(|(_, ticks)| ticks);
        share(unseen.sum(), ticks.values().sum())
    }

    /// That share if there is no clock: the time of processes without any stack, as a share of the time of
    /// all processes with an interpreter. A thread without a stack may simply not execute Python.
    fn unseen_time(&self) -> Option<f64> {
        let (mut unseen, mut all) = (0, 0);
        for (of, seen) in self.threads.iter().filter(|(of, _)| self.interpreters.contains_key(&of.process)) {
            all += seen.ran.0;
            unseen += if self.has_stacks(of.process) { 0 } else { seen.ran.0 };
        }
        share(unseen / TICK_NS, all / TICK_NS)
    }

    /// Whether we sampled any stack of a process.
    fn has_stacks(&self, process: Pid) -> bool {
        let first = Pid::FIRST;
        let mut threads = self.threads.range(ThreadOf { process, thread: first }..);
        threads.by_ref().take_while(|(of, _)| of.process == process).any(|(_, seen)| seen.ticks > 0)
    }

    /// A function's share of the time, over all threads. 1 means one thread all the time.
    pub fn share(&self, function: &FunctionSeen) -> f64 {
        let all = match function.line {
            Some(_) => self.ticks as f64,
            None => self.clock.as_ref().map_or(0.0, |clock| clock.rate as f64) * self.span.0 as f64 / 1e9,
        };
        if all > 0.0 { function.own as f64 / all } else { 0.0 }
    }

    /// A function's share of processor time. 1 means one processor all the time.
    pub fn running_share(&self, function: &FunctionSeen) -> f64 {
        function.running.0 as f64 / self.span.0.max(1) as f64
    }
}

impl FunctionSeen {
    /// Adds samples in which this function was the innermost.
    pub(super) fn add(&mut self, thread: ThreadOf, samples: u64, running: Nanos) {
        self.own += samples;
        self.running = self.running + running;
        if self.threads.len() < THREADS_TOLD || self.threads.contains_key(&thread) {
            *self.threads.entry(thread).or_default() += samples;
        }
    }

    /// The number of processes in which the function occurred.
    pub fn processes(&self) -> usize {
        let mut processes: Vec<Pid> = self.threads.keys().map(|of| of.process).collect();
        processes.dedup();
        processes.len()
    }
}
