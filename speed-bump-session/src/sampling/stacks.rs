//! The Python stacks of one process.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    rc::Rc,
};

use rustix::{
    fs::OFlags,
    process::{Resource, getrlimit},
};

use super::{
    code::{self, Codes},
    functions::{Functions, Number},
    layout::{DEBUG_WORDS, Layout},
    memory::{Moment, OfProcess, Source as _},
    profile::{InterpreterSeen, ThreadOf, ThreadSeen},
    standard_library,
    state::State,
    threads::Threads,
    walk::{self, THREADS, ThreadState},
};
use crate::{
    bounds::{Budget, Share},
    process::{Process, mapped_file::FileIdentity, scheduling::ThreadTimes},
    python::{interpreter, version::PythonVersion},
    units::{Nanos, Pid},
};

/// What we know of a thread from the last sample.
#[derive(Debug)]
struct ThreadNow {
    /// The thread's file `schedstat` in /proc.
    times: Option<File>,
    /// The thread's file `syscall` in /proc.
    call: Option<File>,
    /// What the thread did in the last sample.
    doing: Option<State>,
    ran: Option<ThreadTimes>,
    /// The thread's stack in the last sample. As long as the thread does not run, its stack stays the same.
    stack: Option<(u64, Rc<[Number]>)>,
    seen: ThreadSeen,
    _room: Share,
}

/// State and room that all processes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) functions: Functions,
    /// The results of threads that have ended.
    pub(super) ended: BTreeMap<ThreadOf, ThreadSeen>,
    codes: Budget,
    threads: Budget,
}

/// The most threads that we sample, over all processes. Each has two open files.
const THREADS_OF_ALL: usize = 1 << 15;
/// The most ended threads that we still report.
const ENDED: usize = 1 << 16;

impl Default for Shared {
    fn default() -> Self {
        let files = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
        // A thread takes two descriptors, so this leaves half of them for everything else.
        let threads = files.map_or(THREADS_OF_ALL, |files| (files / 4).min(THREADS_OF_ALL));
        Self {
            functions: Functions::default(),
            ended: BTreeMap::new(),
            codes: Budget::new(code::KNOWN_OF_ALL),
            threads: Budget::new(threads),
        }
    }
}

/// The Python stacks of a process.
#[derive(Debug)]
pub(super) struct Stacks {
    pid: Pid,
    layout: Layout,
    runtime: u64,
    seen: InterpreterSeen,
    /// The file with the interpreter.
    pub(super) interpreter: FileIdentity,
    memory: Moment<OfProcess>,
    codes: Codes,
    numbers: Threads,
    threads: HashMap<Pid, ThreadNow>,
    /// The room for threads.
    room: Budget,
    /// Thread states without a thread, such as those that a fork has left behind.
    of_none: HashSet<ThreadState>,
    /// How many threads the last sample left to the next one.
    left: usize,
    /// The address of the first state that we left to the next sample.
    next: Option<u64>,
    pub(super) counts: Counts,
}

/// The counts of stacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) samples: u64,
    pub(super) dropped: u64,
    pub(super) missed: u64,
    pub(super) ran: Nanos,
    pub(super) ran_dropped: Nanos,
}

/// Why we cannot read the stacks of a process.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoStacks {
    /// The process does not run a CPython.
    #[error("it runs no CPython")]
    NoPython,
    /// The process runs a CPython whose layout is unknown.
    #[error("it is not known where CPython {0} keeps its stacks")]
    UnknownVersion(PythonVersion),
    /// The interpreter's file has no symbol `_PyRuntime`, because someone stripped the file.
    #[error("its CPython {0} does not tell where its stacks are (no symbol _PyRuntime)")]
    NoRuntime(PythonVersion),
    /// We cannot inspect the process.
    #[error("it cannot be inspected: {0}")]
    Process(String),
}

impl Stacks {
    /// Finds the interpreter of a process.
    ///
    /// # Errors
    /// We cannot read the stacks. Also returns the interpreter's file, if there is one.
    pub(super) fn open(
        process: &Process,
        shared: &mut Shared,
    ) -> Result<Self, (NoStacks, Option<FileIdentity>)> {
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
            let layout = Layout::for_version(found.version)
                .or_else(described)
                .ok_or_else(|| because(NoStacks::UnknownVersion(found.version)))?;
            let mut stacks = Self {
                pid: process.pid(),
                layout,
                runtime,
                seen: InterpreterSeen {
                    has_gil: !found.is_free_threaded,
                    standard_library: standard_library::folders(
                        &mapped.path_in_process,
                        found.version,
                        mappings.files.iter().map(|file| file.path_in_process.as_path()),
                    ),
                    runtime,
                },
                interpreter: mapped.identity,
                memory: Moment::new(OfProcess(process.pid())),
                codes: Codes::new(layout, &shared.codes),
                numbers: Threads::default(),
                threads: HashMap::new(),
                room: shared.threads.clone(),
                of_none: HashSet::new(),
                left: 0,
                next: None,
                counts: Counts::default(),
            };
            stacks.look_again(process, shared);
            return Ok(stacks);
        }
        Err((NoStacks::NoPython, None))
    }

    /// Facts about the interpreter.
    pub(super) fn of_interpreter(&self) -> InterpreterSeen {
        self.seen.clone()
    }

    /// Updates the list of threads.
    pub(super) fn look_again(&mut self, process: &Process, shared: &mut Shared) {
        self.of_none.clear();
        self.find_threads(process, shared);
    }

    fn find_threads(&mut self, process: &Process, shared: &mut Shared) {
        let mut threads = process.thread_ids().unwrap_or_default();
        threads.truncate(THREADS);
        self.numbers.set(process, &threads);
        let there: HashSet<Pid> = threads.iter().copied().collect();
        for (thread, now) in self.threads.extract_if(|thread, _| !there.contains(thread)) {
            shared.has_ended(ThreadOf { process: self.pid, thread }, now.seen);
        }
        for thread in threads {
            if self.threads.contains_key(&thread) {
                continue;
            }
            if self.threads.len() >= THREADS_OF_ALL {
                break;
            }
            // If we cannot open a thread's files, we sample the thread anyway, each time without knowledge
            // from the last sample.
            let mut room = self.room.share(1);
            let has_room = room.take(1);
            let open = |name: &str| {
                has_room
                    .then(|| process.open_entry(&format!("task/{thread}/{name}"), OFlags::RDONLY).ok())
                    .flatten()
            };
            let now = ThreadNow {
                times: open("schedstat"),
                call: open("syscall"),
                doing: None,
                ran: None,
                stack: None,
                seen: ThreadSeen::default(),
                _room: room,
            };
            self.threads.insert(thread, now);
        }
    }

    /// Samples the stacks of all threads, as long as `may_go_on` allows it. Returns whether it finished.
    pub(super) fn look(
        &mut self,
        process: &Process,
        shared: &mut Shared,
        may_go_on: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.look_while(process, shared, may_go_on);
        // Frees the memory, because other code needs the room.
        self.memory.forget();
        self.left == 0
    }

    fn look_while(&mut self, process: &Process, shared: &mut Shared, may_go_on: &mut dyn FnMut() -> bool) {
        if !may_go_on() {
            self.left = self.threads.len().max(1);
            self.counts.missed += self.left as u64;
            return;
        }
        self.left = 0;
        let next = self.next.take();
        let Ok(mut threads) = walk::threads(&mut self.memory, &self.layout, self.runtime) else {
            self.counts.dropped += 1;
            return;
        };
        // If there is a new state, a thread may have started since the last update. We update the list once,
        // and remember states that still have no thread, so that they cause no further update.
        let is_new =
            |of: &mut Self, state: &ThreadState| !of.of_none.contains(state) && of.thread(*state).is_none();
        if threads.iter().any(|state| is_new(self, state)) {
            self.find_threads(process, shared);
            let of_none: Vec<ThreadState> =
                threads.iter().filter(|state| self.thread(**state).is_none()).copied().collect();
            if self.of_none.len() > THREADS {
                self.of_none.clear();
            }
            self.of_none.extend(of_none);
        }
        // Begins with the threads for which the last sample had no time.
        let first = threads.iter().position(|state| Some(state.address) == next);
        threads.rotate_left(first.unwrap_or(0));
        let mut done: HashSet<Pid> = HashSet::new();
        for (place, state) in threads.iter().enumerate() {
            if !may_go_on() {
                self.left = threads.len() - place;
                self.next = Some(state.address);
                self.counts.missed += self.left as u64;
                return;
            }
            let Some(thread) = self.thread(*state) else { continue };
            // A thread may have states in several interpreters, but executes code only in one of them.
            if !done.contains(&thread) && self.look_at(thread, state.address, &mut shared.functions) {
                done.insert(thread);
            }
        }
    }

    /// Samples a thread. Returns whether it executes Python code.
    fn look_at(&mut self, thread: Pid, state: u64, functions: &mut Functions) -> bool {
        let Some(now) = self.threads.get_mut(&thread) else {
            // There was no room for this thread.
            self.counts.missed += 1;
            return true;
        };
        let ran = now.times.as_ref().and_then(ThreadTimes::read);
        let both = ran.zip(now.ran);
        let running = both.map_or(Nanos(0), |(ran, before)| Nanos(ran.ran.0.saturating_sub(before.ran.0)));
        let has_run =
            |(ran, before): (ThreadTimes, ThreadTimes)| (ran.ran, ran.began) != (before.ran, before.began);
        let is_same = both.is_some_and(|both| !has_run(both));
        now.ran = ran;
        // A thread that waited, and has not run since, still waits. If we cannot find out, we count it as
        // working.
        let waits = now.doing.filter(|doing| is_same && *doing != State::Works);
        let read = || now.call.as_ref().and_then(|call| State::read(call, &self.seen));
        let doing = waits.or_else(read).unwrap_or(State::Works);
        now.doing = Some(doing);
        let known = now.stack.as_ref().filter(|(of, _)| is_same && *of == state);
        let stack = match known {
            Some((_, stack)) => Rc::clone(stack),
            None => {
                let numbers =
                    walk::functions(&mut self.memory, &self.layout, state, &mut self.codes, functions);
                match numbers {
                    Ok(numbers) => Rc::from(numbers),
                    Err(walk::Torn) => {
                        now.stack = None;
                        self.counts.dropped += 1;
                        self.counts.ran = self.counts.ran + running;
                        self.counts.ran_dropped = self.counts.ran_dropped + running;
                        return true;
                    }
                }
            }
        };
        now.stack = Some((state, Rc::clone(&stack)));
        if stack.is_empty() {
            return false;
        }
        self.counts.samples += 1;
        self.counts.ran = self.counts.ran + running;
        now.seen.ticks += 1;
        now.seen.running = now.seen.running + running;
        functions.add(&stack, ThreadOf { process: self.pid, thread }, running, doing);
        true
    }

    /// The thread of a state: its id in our own PID namespace.
    fn thread(&mut self, state: ThreadState) -> Option<Pid> {
        let by_number = state.number.and_then(|number| self.numbers.by_number(number));
        by_number.or_else(|| self.numbers.by_description(self.memory.source(), state.description))
    }

    /// Ends sampling of this process: it has ended, or the whole sampling ends.
    pub(super) fn end(self, shared: &mut Shared) -> Counts {
        for (thread, now) in self.threads {
            shared.has_ended(ThreadOf { process: self.pid, thread }, now.seen);
        }
        self.counts
    }
}

impl Shared {
    fn has_ended(&mut self, thread: ThreadOf, seen: ThreadSeen) {
        if self.ended.len() < ENDED || self.ended.contains_key(&thread) {
            let of = self.ended.entry(thread).or_default();
            of.ticks += seen.ticks;
            of.running = of.running + seen.running;
        }
    }
}
