//! Changes what the BPF programs do, for many policies at the same time. The change takes effect between two
//! calls.
//!
//! The programs read these words while they run. Helpers also read them, from copies of their own. Each
//! policy has two rows, and one word selects which row is in force. So doses that are set together take
//! effect together.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io,
    sync::{
        Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use speed_bump_abi::{Control, Policy};

use super::EngineError;
use crate::{
    policy::DelayBound,
    sys::{clock::now, mapped_words::MappedWords},
    units::Nanos,
};

/// The words of a [`Control`], in order.
const START: usize = 0;
const END: usize = 1;
const STOP: usize = 2;
const EXPIRES: usize = 3;
const GENERATION: usize = Control::GENERATION;
const SHARE: usize = Control::BOUND.start;
const ROOM: usize = Control::BOUND.end - 1;
pub(super) const CONTROL_WORDS: usize = Control::WORDS;

/// A policy and its number.
pub type NumberedPolicy = (u32, Policy);

/// A copy of the policies and the window. Code that delays calls like the programs reads the copy.
pub trait Mirror: Debug + Send + Sync {
    /// Writes a row of a policy. Ignores a number beyond the capacity.
    ///
    /// # Errors
    /// The copy is gone.
    fn write_policy(&self, number: u32, generation: u64, policy: Policy) -> io::Result<()>;

    /// Writes the window and the generation. The rows of this generation must already be there.
    ///
    /// # Errors
    /// The copy is gone.
    fn write_control(&self, control: Control) -> io::Result<()>;
}

/// The policies and the window of a loaded BPF object. Any thread may use it at any time.
#[derive(Debug)]
pub struct PolicySwitch {
    control: MappedWords,
    policies: MappedWords,
    set: Mutex<Set>,
    /// The longest delay that was ever set, in ns.
    longest_ns: AtomicU64,
}

/// The values in force, and the mirrors.
#[derive(Debug, Default)]
struct Set {
    /// The policies that were set last. Only the rows in force have them yet.
    last: Vec<NumberedPolicy>,
    all: BTreeMap<u32, Policy>,
    mirrors: Vec<Weak<dyn Mirror>>,
}

impl Set {
    /// Writes to each mirror that still exists. If that fails, we drop the mirror: its reader notices that
    /// the mirror is gone.
    fn mirror(&mut self, write: impl Fn(&dyn Mirror) -> io::Result<()>) {
        self.mirrors.retain(|mirror| mirror.upgrade().is_some_and(|mirror| write(&*mirror).is_ok()));
    }
}

impl PolicySwitch {
    pub(super) fn new(control: MappedWords, policies: MappedWords) -> Self {
        Self { control, policies, set: Mutex::default(), longest_ns: AtomicU64::new(0) }
    }

    /// A switch with this number of policies that no BPF program reads. Only its mirrors apply them.
    ///
    /// # Errors
    /// Memory is short.
    pub fn without_programs(policies: u32) -> io::Result<Self> {
        let words = |length: usize| {
            let memory = memfd_create("speed-bump-policies", MemfdFlags::CLOEXEC)?;
            // No other code has this file, so it keeps its size.
            ftruncate(&memory, (length * size_of::<u64>()) as u64)?;
            MappedWords::of_array(&memory, length)
        };
        let rows = policies.max(1) as usize * Policy::ROWS as usize;
        Ok(Self::new(words(CONTROL_WORDS)?, words(rows * Policy::WORDS)?))
    }

    /// Writes everything to this mirror too, now and after each change.
    ///
    /// # Errors
    /// The mirror is gone.
    pub fn add_mirror(&self, mirror: Weak<dyn Mirror>) -> io::Result<()> {
        let mut set = self.lock();
        let control = self.control();
        if let Some(mirror) = mirror.upgrade() {
            for (number, policy) in &set.all {
                for generation in [control.generation, control.generation.wrapping_add(1)] {
                    mirror.write_policy(*number, generation, *policy)?;
                }
            }
            mirror.write_control(control)?;
        }
        set.mirrors.push(mirror);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        // A panic while the lock is held leaves the data consistent.
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> Control {
        let mut words = [0; CONTROL_WORDS];
        for (word, from) in words.iter_mut().zip(self.control.all()) {
            *word = from.load(Ordering::SeqCst);
        }
        Control::from_words(words)
    }

    fn mirror_control(&self) {
        let mut set = self.lock();
        let control = self.control();
        set.mirror(|mirror| mirror.write_control(control));
    }

    /// Sets these policies at the same time. They apply to every call that starts at the returned time or
    /// later. If a number occurs twice, the later policy counts.
    ///
    /// # Errors
    /// A number is beyond the engine's [`Capacity`](super::Capacity). Nothing has changed.
    pub fn set(&self, policies: &[NumberedPolicy]) -> Result<Nanos, EngineError> {
        if let Some((number, _)) = policies.iter().find(|(number, _)| self.rows(*number).is_none()) {
            return Err(EngineError::NoPolicy { number: *number });
        }
        let mut set = self.lock();
        let longest_ns = policies.iter().map(|(_, policy)| policy.delay_ns).max().unwrap_or(0);
        self.longest_ns.fetch_max(longest_ns, Ordering::Relaxed);
        let generation = self.word(GENERATION).load(Ordering::Relaxed).wrapping_add(1);
        let last = std::mem::replace(&mut set.last, policies.to_vec());
        for (number, policy) in last.iter().chain(policies) {
            self.write(*number, generation, *policy);
            set.all.insert(*number, *policy);
            set.mirror(|mirror| mirror.write_policy(*number, generation, *policy));
        }
        self.word(GENERATION).store(generation, Ordering::SeqCst);
        let control = self.control();
        set.mirror(|mirror| mirror.write_control(control));
        Ok(now())
    }

    /// The present policy; `None` for a number beyond the capacity.
    pub fn policy(&self, number: u32) -> Option<Policy> {
        let _unchanged = self.lock();
        let generation = self.word(GENERATION).load(Ordering::Acquire);
        let mut words = [0; Policy::WORDS];
        for (word, from) in words.iter_mut().zip(self.row(number, generation)?) {
            *word = from.load(Ordering::Relaxed);
        }
        Some(Policy::from_words(words))
    }

    /// The longest delay that was ever set.
    pub fn longest(&self) -> Nanos {
        Nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    /// Sets the window in which calls are delayed. The window stays open as long as the caller
    /// [renews](Self::renew) it.
    pub fn open(&self, start: Nanos, end: Nanos) {
        // Closes the window until both ends are set.
        self.word(START).store(u64::MAX, Ordering::SeqCst);
        self.word(END).store(end.0, Ordering::SeqCst);
        self.word(START).store(start.0, Ordering::SeqCst);
        self.mirror_control();
    }

    /// Keeps the policies in force until this time.
    pub fn renew(&self, until: Nanos) {
        self.word(EXPIRES).store(until.0, Ordering::Release);
        self.mirror_control();
    }

    /// Bounds the delays of each thread, from the next call on.
    pub fn set_bound(&self, bound: DelayBound) {
        let bound = bound.to_words();
        self.word(ROOM).store(bound.room, Ordering::SeqCst);
        self.word(SHARE).store(bound.share, Ordering::SeqCst);
        self.mirror_control();
    }

    /// Ends all delays for good, including those in progress.
    pub fn stop(&self) {
        self.word(STOP).store(1, Ordering::SeqCst);
        self.mirror_control();
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        /// Stands in for a missing word. No word is missing: the mapping has [`CONTROL_WORDS`] words.
        static NONE: AtomicU64 = AtomicU64::new(0);
        self.control.all().get(at).unwrap_or(&NONE)
    }

    fn write(&self, number: u32, generation: u64, policy: Policy) {
        for (word, value) in self.row(number, generation).unwrap_or_default().iter().zip(policy.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn rows(&self, number: u32) -> Option<&[AtomicU64]> {
        let words = Policy::ROWS as usize * Policy::WORDS;
        let first = (number as usize).checked_mul(words)?;
        self.policies.all().get(first..first.checked_add(words)?)
    }

    fn row(&self, number: u32, generation: u64) -> Option<&[AtomicU64]> {
        let at = Policy::row(0, generation) as usize * Policy::WORDS;
        self.rows(number)?.get(at..at + Policy::WORDS)
    }
}

#[cfg(test)]
mod tests;
