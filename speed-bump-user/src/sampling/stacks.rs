//! The Python stacks of one process.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs::File,
    path::PathBuf,
    rc::Rc,
};

use rustix::fs::OFlags;

use super::{
    code::Codes,
    layout::{DEBUG_WORDS, Layout},
    memory::{Moment, OfProcess, Source as _},
    profile::{FunctionSeen, InterpreterSeen, THREADS_TOLD, ThreadOf, ThreadSeen},
    threads::Threads,
    walk::{self, THREADS, ThreadState},
};
use crate::{
    process::{Process, mapped_file::FileIdentity, scheduling::ThreadTimes},
    python::{interpreter, version::PythonVersion},
    units::{Nanos, Pid},
};

/// What was counted of a function.
#[derive(Debug, Default)]
struct Tally {
    own: BTreeMap<ThreadOf, (u64, Nanos)>,
    anywhere: u64,
    anywhere_running: Nanos,
    /// Threads that it was anywhere in; not all where they are many.
    threads: BTreeSet<ThreadOf>,
    /// How many functions were above it, in all samples that it was anywhere in.
    above: u64,
}

/// A thread between two looks.
#[derive(Debug)]
struct ThreadNow {
    /// Its `schedstat`.
    times: Option<File>,
    ran: Option<ThreadTimes>,
    /// Its stack when it was last looked at; it is the same while it does not run.
    stack: Option<(u64, Rc<[u32]>)>,
    seen: ThreadSeen,
}

/// The stacks of a process with a CPython.
#[derive(Debug)]
pub(super) struct Stacks {
    pid: Pid,
    layout: Layout,
    runtime: u64,
    has_gil: bool,
    /// The file that the interpreter is in.
    pub(super) interpreter: FileIdentity,
    memory: Moment<OfProcess>,
    codes: Codes,
    /// By the number of the function.
    tallies: Vec<Tally>,
    numbers: Threads,
    threads: HashMap<Pid, ThreadNow>,
    /// States of threads that are not there, as those that a fork left behind.
    of_none: HashSet<ThreadState>,
    pub(super) samples: u64,
    pub(super) dropped: u64,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoStacks {
    /// It runs no CPython.
    #[error("it runs no CPython")]
    NoPython,
    /// One that is not known.
    #[error("where CPython {0} keeps its stacks is not known")]
    UnknownVersion(PythonVersion),
    /// The interpreter was stripped of `_PyRuntime`.
    #[error("its CPython {0} does not tell where its stacks are (no symbol _PyRuntime)")]
    NoRuntime(PythonVersion),
    /// It cannot be looked into.
    #[error("it cannot be looked into: {0}")]
    Process(String),
}

impl Stacks {
    /// Finds the interpreter of a process.
    ///
    /// # Errors
    /// There are no stacks that could be read. The file of the interpreter is told, if one was found.
    pub(super) fn of(process: &Process) -> Result<Self, (NoStacks, Option<FileIdentity>)> {
        let mappings = process.mappings().map_err(|error| (NoStacks::Process(error.to_string()), None))?;
        for mapped in &mappings.files {
            let Ok(open) = mapped.open(process) else { continue };
            let Ok(Some(found)) = interpreter::identify(open.file(), &mapped.path_in_process) else {
                continue;
            };
            let because = |why| (why, Some(mapped.identity));
            let no_runtime = || because(NoStacks::NoRuntime(found.version));
            let runtime = found.runtime.ok_or_else(no_runtime)?;
            let bias = found
                .evaluator
                .and_then(|evaluator| mapped.load_bias(evaluator.offset, evaluator.address))
                .ok_or_else(no_runtime)?;
            let runtime = runtime.0.wrapping_add(bias);
            let mut source = OfProcess(process.pid());
            let described = || {
                let mut bytes = vec![0; DEBUG_WORDS * 8];
                let read = source.read(runtime, &mut bytes);
                let words = bytes.get(..read)?.chunks_exact(8);
                let words: Vec<u64> =
                    words.filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes)).collect();
                Layout::described(&words)
            };
            let layout = Layout::of(found.version)
                .or_else(described)
                .ok_or_else(|| because(NoStacks::UnknownVersion(found.version)))?;
            let mut stacks = Self {
                pid: process.pid(),
                layout,
                runtime,
                has_gil: !found.is_free_threaded,
                interpreter: mapped.identity,
                memory: Moment::of(OfProcess(process.pid())),
                codes: Codes::new(layout),
                tallies: Vec::new(),
                numbers: Threads::default(),
                threads: HashMap::new(),
                of_none: HashSet::new(),
                samples: 0,
                dropped: 0,
            };
            stacks.look_again(process);
            return Ok(stacks);
        }
        Err((NoStacks::NoPython, None))
    }

    /// What is known of the interpreter.
    pub(super) fn of_interpreter(&self) -> InterpreterSeen {
        InterpreterSeen { has_gil: self.has_gil, runtime: self.runtime }
    }

    /// Finds out which threads there are now.
    pub(super) fn look_again(&mut self, process: &Process) {
        self.of_none.clear();
        self.find_threads(process);
    }

    fn find_threads(&mut self, process: &Process) {
        let mut threads = process.thread_ids().unwrap_or_default();
        threads.truncate(THREADS);
        self.numbers.set(process, &threads);
        for thread in threads {
            self.threads.entry(thread).or_insert_with(|| ThreadNow {
                times: process.open_entry(&format!("task/{thread}/schedstat"), OFlags::RDONLY).ok(),
                ran: None,
                stack: None,
                seen: ThreadSeen::default(),
            });
        }
    }

    /// Looks at all stacks.
    pub(super) fn look(&mut self, process: &Process) {
        self.memory.forget();
        let Ok(threads) = walk::threads(&mut self.memory, &self.layout, self.runtime) else {
            self.dropped += 1;
            return;
        };
        // Threads that began since they were last looked for: once in a look, and not again for a state that
        // is of none.
        let is_new =
            |of: &mut Self, state: &ThreadState| !of.of_none.contains(state) && of.thread(*state).is_none();
        if threads.iter().any(|state| is_new(self, state)) {
            self.find_threads(process);
            let of_none: Vec<ThreadState> =
                threads.iter().filter(|state| self.thread(**state).is_none()).copied().collect();
            self.of_none.extend(of_none);
        }
        let mut done: Vec<Pid> = Vec::new();
        for state in threads {
            let Some(thread) = self.thread(state) else { continue };
            // One with a state in several interpreters executes code in one of them.
            if !done.contains(&thread) && self.look_at(thread, state.address) {
                done.push(thread);
            }
        }
    }

    /// Whether it executes Python code.
    fn look_at(&mut self, thread: Pid, state: u64) -> bool {
        let Some(now) = self.threads.get_mut(&thread) else { return false };
        let ran = now.times.as_ref().and_then(ThreadTimes::read);
        let both = ran.zip(now.ran);
        let running = both.map_or(Nanos(0), |(ran, before)| Nanos(ran.ran.0.saturating_sub(before.ran.0)));
        let has_run =
            |(ran, before): (ThreadTimes, ThreadTimes)| (ran.ran, ran.began) != (before.ran, before.began);
        let is_same = both.is_some_and(|both| !has_run(both));
        now.ran = ran;
        let known = now.stack.as_ref().filter(|(of, _)| is_same && *of == state);
        let stack = match known {
            Some((_, stack)) => Rc::clone(stack),
            None => {
                let codes = walk::stack(&mut self.memory, &self.layout, state);
                let functions = codes.and_then(|codes| self.codes.functions(self.memory.source(), &codes));
                match functions {
                    Ok(functions) => Rc::from(functions),
                    Err(walk::Torn) => {
                        now.stack = None;
                        self.dropped += 1;
                        return true;
                    }
                }
            }
        };
        now.stack = Some((state, Rc::clone(&stack)));
        if stack.is_empty() {
            return false;
        }
        self.samples += 1;
        now.seen.ticks += 1;
        now.seen.running = now.seen.running + running;
        let of = ThreadOf { process: self.pid, thread };
        self.tallies.resize_with(self.codes.all().len(), Tally::default);
        // Where each is the outermost time: one that calls itself is there more than once.
        let mut outermost: Vec<(u32, usize)> = Vec::with_capacity(stack.len());
        for (place, function) in stack.iter().enumerate() {
            let Some(tally) = self.tallies.get_mut(*function as usize) else { continue };
            if place == 0 {
                let own = tally.own.entry(of).or_default();
                own.0 += 1;
                own.1 = own.1 + running;
            }
            match outermost.iter_mut().find(|(known, _)| known == function) {
                Some((_, known)) => *known = place,
                None => {
                    outermost.push((*function, place));
                    tally.anywhere += 1;
                    if tally.threads.len() < THREADS_TOLD {
                        tally.threads.insert(of);
                    }
                    tally.anywhere_running = tally.anywhere_running + running;
                }
            }
        }
        for (function, place) in outermost {
            if let Some(tally) = self.tallies.get_mut(function as usize) {
                tally.above += (stack.len() - 1 - place) as u64;
            }
        }
        true
    }

    /// The thread of a state, as we number it.
    fn thread(&mut self, state: ThreadState) -> Option<Pid> {
        let by_number = state.number.and_then(|number| self.numbers.by_number(number));
        by_number.or_else(|| self.numbers.by_description(self.memory.source(), state.description))
    }

    /// What was seen, of threads and of functions.
    pub(super) fn seen(self) -> (Vec<(ThreadOf, ThreadSeen)>, Vec<FunctionSeen>) {
        let of = |thread: Pid| ThreadOf { process: self.pid, thread };
        let threads = self.threads.iter().map(|(thread, now)| (of(*thread), now.seen.clone())).collect();
        let functions = self.codes.all().iter().zip(&self.tallies).map(|(function, tally)| {
            let mut seen = FunctionSeen {
                file: PathBuf::from(&function.file),
                name: function.name.clone(),
                line: Some(function.line),
                own: 0,
                running: Nanos(0),
                anywhere: tally.anywhere,
                anywhere_running: tally.anywhere_running,
                is_qualified: self.layout.code.is_qualified(),
                is_everybodys: false,
                // Seldom a stack is cut short, as it was changed meanwhile.
                depth: (tally.above + tally.anywhere / 2).checked_div(tally.anywhere).unwrap_or(0) as u32,
                threads: BTreeMap::new(),
            };
            tally.own.iter().for_each(|(thread, (samples, running))| seen.add(*thread, *samples, *running));
            tally.threads.iter().for_each(|thread| seen.add_thread(*thread));
            seen
        });
        (threads, functions.collect())
    }
}
