//! What sampling found.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use crate::units::{Nanos, Pid};

/// Threads of a function that are told.
pub(super) const THREADS_TOLD: usize = 64;

/// Of fewer ticks or looks than this no share is told.
const MIN: u64 = 10;
/// So many looks do not miss a thread by chance: once in 150 times.
const LOOKS_MISSED: f64 = 5.0;
/// The time of a tick, where there is no clock.
const TICK_NS: u64 = 10_000_000;

/// `None` where there are too few.
fn share(part: u64, all: u64) -> Option<f64> {
    (all >= MIN).then(|| part as f64 / all as f64)
}

/// What was seen of processes in a stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// How long it took.
    pub span: Nanos,
    /// How often stacks were looked at.
    pub ticks: u64,
    /// What was seen of each thread.
    pub threads: BTreeMap<ThreadOf, ThreadSeen>,
    /// The processes that run a CPython.
    pub interpreters: BTreeMap<Pid, InterpreterSeen>,
    /// By their own samples, the most first.
    pub functions: Vec<FunctionSeen>,
    /// Python stacks that were read.
    pub samples: u64,
    /// Those that made no sense, as they were changed while they were read.
    pub dropped: u64,
    /// Of those that were read, those that end in a function that is left out, by the reason.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// Looks at threads that were left out, as there was no time or no room for them.
    pub missed: u64,
    /// For how long threads with stacks ran.
    pub ran: Nanos,
    /// The part of it that is no function's: of stacks that made no sense, or of functions that are left out.
    pub ran_unattributed: Nanos,
    /// Ticks of the processors' clock for these processes; `None` where there is no such clock.
    pub clock: Option<ClockSeen>,
    /// Processor time that the sampling itself took.
    pub own_cost: Nanos,
    /// What could not be seen, and why.
    pub remarks: Vec<String>,
}

/// A thread and its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadOf {
    /// PID of its process.
    pub process: Pid,
    /// Its own number.
    pub thread: Pid,
}

/// Why a Python function is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// Its name or its file is empty: no target selects it.
    NoName,
    /// Its name or its file is longer than [`NAME_BYTES`](crate::bounds::NAME_BYTES): no line of a target has
    /// room for it.
    TooLong,
    /// So many functions, or so many bytes of names, were seen that there is no room for more.
    TooMany,
}

impl LeftOut {
    /// What such functions are.
    pub fn what(self) -> &'static str {
        match self {
            Self::NoName => "functions whose name or file is empty",
            Self::TooLong => "functions whose name or file is longer than 4 KiB",
            Self::TooMany => "functions beyond the first 65,536, or beyond the first 32 MiB of names",
        }
    }
}

/// The interpreter of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterSeen {
    /// Whether one thread at a time executes Python code.
    pub has_gil: bool,
    /// Where its state begins.
    pub(super) runtime: u64,
}

impl InterpreterSeen {
    /// Bytes from there on in which its own locks are: `_PyRuntime` has the GIL, and is below 1 MiB.
    const OWN: u64 = 1 << 20;

    /// Whether a futex is one of the interpreter's own, as the GIL's.
    pub fn is_own_lock(&self, futex: u64) -> bool {
        futex.checked_sub(self.runtime).is_some_and(|offset| offset < Self::OWN)
    }
}

/// How often a thread was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSeen {
    /// Times that its stack was looked at; 0 where it has none of Python.
    pub ticks: u64,
    /// For how long it had a processor meanwhile.
    pub running: Nanos,
    /// Ticks of a processor's clock while it had that processor.
    pub clock: u64,
    /// For how long it had one in all, where that is known.
    pub ran: Nanos,
    /// For how long it waited for one, where that is known.
    pub waited: Nanos,
    /// Addresses of the futexes that it was seen to wait on: locks, and what queues wait with.
    pub locks: BTreeSet<u64>,
}

/// A function on a sampled stack, and how often it was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSeen {
    /// The file: as a Python program calls it, or the one that the process maps.
    pub file: PathBuf,
    /// Its qualified name; that without its class before 3.11; or its symbol.
    pub name: String,
    /// The line of its definition; `None` of native functions.
    pub line: Option<u32>,
    /// Samples in which it was the innermost function: looks at stacks, or ticks of the processors' clock for
    /// a native function.
    pub own: u64,
    /// For how long their threads had run since the looks before them.
    pub running: Nanos,
    /// Samples in which it was anywhere on the stack; for a native function, the same as `own`.
    pub anywhere: u64,
    /// For how long the threads had run since the looks before.
    pub anywhere_running: Nanos,
    /// Whether the name is qualified, as those of Python before 3.11 are not.
    pub is_qualified: bool,
    /// Whether it is the C library's, or an allocator's: a delay there answers nothing that a user could act
    /// on. Its samples are in [`ClockSeen::elsewhere`] too.
    pub is_everybodys: bool,
    /// How many functions called each other down to it, on average: 0 is the outermost.
    pub depth: u32,
    /// Own samples by thread, and 0 where it was on the stack only; of 64 threads at most.
    pub threads: BTreeMap<ThreadOf, u64>,
}

/// Ticks of the processors' clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockSeen {
    /// Ticks of a processor in a second.
    pub rate: u64,
    /// Ticks for these processes.
    pub samples: u64,
    /// Those that are no function's: by what it was that the processes executed.
    pub elsewhere: BTreeMap<String, u64>,
    /// Those in the Python interpreter's own code, which executes Python functions.
    pub interpreter: BTreeMap<ThreadOf, u64>,
}

impl Profile {
    /// Looks at stacks in a second.
    pub fn rate(&self) -> f64 {
        if self.span.0 == 0 { 0.0 } else { self.ticks as f64 * 1e9 / self.span.0 as f64 }
    }

    /// The share of the Python interpreter's time that is no function's that was seen: that of threads whose
    /// stacks were not found, and that of stacks that could not be read or end in functions that are left
    /// out. `None` where too little was seen.
    pub fn unattributed(&self) -> Option<f64> {
        let unseen = match &self.clock {
            Some(clock) => self.unseen_ticks(clock),
            None => self.unseen_time(),
        };
        let left_out: u64 = self.left_out.values().sum();
        let no_functions = self.dropped + self.missed + left_out;
        let of_looks = share(no_functions, self.samples + self.dropped + self.missed);
        // Threads that wait have stacks too, and those can hide what runs.
        let of_time = share(self.ran_unattributed.0 / TICK_NS, self.ran.0 / TICK_NS);
        let unreadable = of_looks.into_iter().chain(of_time).max_by(f64::total_cmp);
        let (unseen, unreadable) = match (unseen, unreadable) {
            (None, None) => return None,
            (unseen, unreadable) => (unseen.unwrap_or(0.0), unreadable.unwrap_or(0.0)),
        };
        Some(unseen + (1.0 - unseen) * unreadable)
    }

    /// What was seen, and is told by no function.
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
            // A thread that was there for a moment may have been missed, while others like it were not.
            has_stack || self.has_stacks(of.process) && (ticks as f64 * looks) < LOOKS_MISSED
        };
        let ticks = &clock.interpreter;
        let unseen = ticks.iter().filter(|(of, ticks)| !is_seen(of, **ticks)).map(|(_, ticks)| ticks);
        share(unseen.sum(), ticks.values().sum())
    }

    /// Where there is no clock: of the time that processes with an interpreter ran, that of those without any
    /// stack. A thread without one may be one that executes no Python.
    fn unseen_time(&self) -> Option<f64> {
        let (mut unseen, mut all) = (0, 0);
        for (of, seen) in self.threads.iter().filter(|(of, _)| self.interpreters.contains_key(&of.process)) {
            all += seen.ran.0;
            unseen += if self.has_stacks(of.process) { 0 } else { seen.ran.0 };
        }
        share(unseen / TICK_NS, all / TICK_NS)
    }

    /// Whether any stack of a process was seen.
    fn has_stacks(&self, process: Pid) -> bool {
        let first = Pid::FIRST;
        let mut threads = self.threads.range(ThreadOf { process, thread: first }..);
        threads.by_ref().take_while(|(of, _)| of.process == process).any(|(_, seen)| seen.ticks > 0)
    }

    /// What a function took of the time, all threads taken together: 1 is one thread all the time.
    pub fn share(&self, function: &FunctionSeen) -> f64 {
        let all = match function.line {
            Some(_) => self.ticks as f64,
            None => self.clock.as_ref().map_or(0.0, |clock| clock.rate as f64) * self.span.0 as f64 / 1e9,
        };
        if all > 0.0 { function.own as f64 / all } else { 0.0 }
    }

    /// What it took of processors: 1 is one of them all the time.
    pub fn running_share(&self, function: &FunctionSeen) -> f64 {
        function.running.0 as f64 / self.span.0.max(1) as f64
    }
}

impl FunctionSeen {
    /// Samples in which it was the innermost.
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
