//! The times of native functions in a loaded BPF object.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use speed_bump_abi::times::FunctionTimes;

use crate::sys::mapped_words::MappedWords;

/// The times of functions, by function index. Any thread may use them at any time.
#[derive(Debug)]
pub struct Times {
    words: MappedWords,
    timed: Mutex<BTreeSet<u32>>,
}

impl Times {
    /// The number of words for each function.
    pub(super) const WORDS: usize = size_of::<FunctionTimes>() / size_of::<u64>();

    pub(super) fn new(words: MappedWords) -> Self {
        Self { words, timed: Mutex::default() }
    }

    fn timed(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // A panic while the lock is held leaves the data consistent.
        self.timed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts or stops timing a function.
    pub fn set_timed(&self, function: u32, is_timed: bool) {
        if is_timed {
            self.timed().insert(function);
        } else {
            self.timed().remove(&function);
        }
    }

    /// The times of consecutive functions; `None` for functions that the session does not time. Empty if it
    /// times no function.
    pub fn read(&self, first: u32, count: u32) -> Vec<Option<FunctionTimes>> {
        let timed = self.timed();
        if timed.is_empty() {
            return Vec::new();
        }
        let functions = first..first.saturating_add(count);
        functions
            .map(|function| timed.contains(&function).then(|| self.read_one(function)).flatten())
            .collect()
    }

    fn read_one(&self, function: u32) -> Option<FunctionTimes> {
        let first = (function as usize).checked_mul(Self::WORDS)?;
        let words = self.words.all().get(first..first.checked_add(Self::WORDS)?)?;
        let [recursive, resumed, recursive_resumed, own_ns, cumulative_ns] = words else { return None };
        let read = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        Some(FunctionTimes {
            recursive: read(recursive),
            resumed: read(resumed),
            recursive_resumed: read(recursive_resumed),
            own_ns: read(own_ns),
            cumulative_ns: read(cumulative_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn times_are_those_of_timed_functions_alone() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let times = Times::new(MappedWords::of_array(&file, 3 * Times::WORDS).unwrap());
        for (at, word) in (0_u64..).zip(times.words.all()) {
            word.store(at, Ordering::Relaxed);
        }
        assert_eq!(times.read(0, 3), []);
        times.set_timed(1, true);
        times.set_timed(7, true);
        let second =
            FunctionTimes { recursive: 5, resumed: 6, recursive_resumed: 7, own_ns: 8, cumulative_ns: 9 };
        assert_eq!(times.read(0, 2), [None, Some(second)]);
        assert_eq!(times.read(7, 1), [None], "beyond the map");
        times.set_timed(1, false);
        assert_eq!(times.read(1, 1), [None]);
    }
}
