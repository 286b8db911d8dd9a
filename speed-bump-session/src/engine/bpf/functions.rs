//! The functions of a loaded BPF object: their policies and counters.

use std::{
    io,
    os::fd::AsFd as _,
    sync::atomic::{AtomicU64, Ordering},
};

use aya::maps::Map;
use speed_bump_abi::{FunctionEntry, FunctionStats, Histogram, maps};

use super::{Capacity, EngineError, object::Maps, processors, times::Times};
use crate::{engine::TakeHistogram, sys::mapped_words::MappedWords};

/// The policy and counters of each function, by function index. Any thread may use them at any time.
#[derive(Debug)]
pub struct FunctionMaps {
    entries: MappedWords,
    /// The counters of each function. They are in the order of the processors.
    stats: MappedWords,
    histograms: MappedWords,
    times: Times,
}

/// The number of words in a function's counters on one processor.
const WORDS: usize = size_of::<FunctionStats>() / size_of::<u64>();

impl FunctionMaps {
    /// Maps the memory of a loaded object with this capacity.
    pub(super) fn new(created: &Maps, capacity: &Capacity) -> Result<Self, EngineError> {
        let mapping = |name| move |error| EngineError::Mapping { name, error };
        let words = |name: &'static str, count: u32, of_each| {
            let Map::Array(map) = created.get(name)? else { return Err(EngineError::NoMap { name }) };
            let length = (count.max(1) as usize).saturating_mul(of_each);
            MappedWords::of_array(map.fd().as_fd(), length).map_err(mapping(name))
        };
        Ok(Self {
            entries: words(maps::FUNCTIONS, capacity.functions, 1)?,
            stats: words(maps::STATS, capacity.functions, of_all_processors())?,
            histograms: words(maps::HISTOGRAMS, capacity.histograms, Histogram::WORDS)?,
            times: Times::new(words(maps::TIMES, capacity.timed_functions(), Times::WORDS)?),
        })
    }

    /// Sets a function's policy. Does nothing for a function beyond the capacity.
    pub fn set_entry(&self, function: u32, entry: FunctionEntry) {
        if let Some(word) = self.entries.all().get(function as usize) {
            word.store(entry.to_word(), Ordering::Release);
        }
    }

    /// The counters of a function, summed over the CPUs. Some values have no sum: we take these from the CPU
    /// with the most delays.
    ///
    /// # Errors
    /// `InvalidInput` for a function beyond the capacity.
    pub fn stats(&self, function: u32) -> io::Result<FunctionStats> {
        Ok(self.stats_of(function, 1)?.pop().unwrap_or_default())
    }

    /// The counters of consecutive functions.
    ///
    /// # Errors
    /// `InvalidInput` for functions beyond the capacity.
    pub fn stats_of(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>> {
        Ok(self.words(first, count)?.map(|words| sum(of_processors(words))).collect())
    }

    /// Calls `take` with each histogram of consecutive functions, summed over the CPUs. This leaves out
    /// functions without a histogram.
    ///
    /// # Errors
    /// `InvalidInput` for functions beyond the capacity.
    pub fn histograms_of(&self, first: u32, count: u32, take: &mut TakeHistogram<'_>) -> io::Result<()> {
        for (function, words) in (first..).zip(self.words(first, count)?) {
            let mut of_cpus = of_processors(words).filter_map(|stats| self.histogram(stats.histogram));
            if let Some(words) = of_cpus.next() {
                let mut sum = read(words);
                of_cpus.for_each(|words| sum += read(words));
                take(function, sum);
            }
        }
        Ok(())
    }

    /// The times of functions.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Resets the counters of a function on all CPUs. The function keeps its histograms, but they become
    /// empty.
    ///
    /// # Errors
    /// `InvalidInput` for a function beyond the capacity.
    pub fn clear_stats(&self, function: u32) -> io::Result<()> {
        for words in self.words(function, 1)? {
            for words in words.chunks_exact(WORDS) {
                let FunctionStats { histogram, .. } = stats(words);
                let of_histogram = self.histogram(histogram).unwrap_or_default();
                of_histogram.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                let none = FunctionStats { histogram, ..FunctionStats::default() };
                words.iter().zip(none.to_words()).for_each(|(word, new)| word.store(new, Ordering::Relaxed));
            }
        }
        Ok(())
    }

    /// The words of the counters of consecutive functions. Each item has the words of all processors.
    fn words(&self, first: u32, count: u32) -> io::Result<impl Iterator<Item = &[AtomicU64]>> {
        let of_each = of_all_processors();
        let start = (first as usize).checked_mul(of_each);
        let end = (first as usize).checked_add(count as usize).and_then(|end| end.checked_mul(of_each));
        let words = start.zip(end).and_then(|(start, end)| self.stats.all().get(start..end));
        Ok(words.ok_or(io::ErrorKind::InvalidInput)?.chunks_exact(of_each))
    }

    /// The words of a histogram. `number` is the histogram's number plus 1. Returns `None` if there is no
    /// such histogram.
    fn histogram(&self, number: u32) -> Option<&[AtomicU64]> {
        let first = (number as usize).checked_sub(1)?.checked_mul(Histogram::WORDS)?;
        self.histograms.all().get(first..first.checked_add(Histogram::WORDS)?)
    }
}

/// The number of words in a function's counters on all processors.
fn of_all_processors() -> usize {
    WORDS * processors() as usize
}

/// The counters on each processor, from the words of a function.
fn of_processors(words: &[AtomicU64]) -> impl Iterator<Item = FunctionStats> {
    words.chunks_exact(WORDS).map(stats)
}

fn stats(words: &[AtomicU64]) -> FunctionStats {
    let mut values = [0; WORDS];
    values.iter_mut().zip(words).for_each(|(value, word)| *value = word.load(Ordering::Relaxed));
    FunctionStats::from_words(values)
}

fn read(words: &[AtomicU64]) -> Histogram {
    let mut histogram = Histogram::default();
    for (word, atomic) in histogram.words.iter_mut().zip(words) {
        *word = atomic.load(Ordering::Relaxed);
    }
    histogram
}

/// Adds up the counters of all CPUs.
fn sum(of_cpus: impl Iterator<Item = FunctionStats>) -> FunctionStats {
    let mut sum = FunctionStats::default();
    let mut most = 0;
    for stats in of_cpus {
        if stats.delayed > most {
            most = stats.delayed;
            (sum.telltale_ns, sum.telltale_of) = (stats.telltale_ns, stats.telltale_of);
        }
        sum += stats;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn counters_add_up_over_cpus_and_the_busiest_tells_the_rest() {
        let number = |number: u64| number << 32;
        let words =
            [[1, 2, 3, 4, number(9) | 5, 6, 7, 8], [10, 20, 30, 40, number(4) | 50, 60, 70, 80], [0; 8]];
        let words: Vec<_> = words.concat().into_iter().map(AtomicU64::new).collect();
        let expected = FunctionStats {
            calls: 11,
            delayed: 22,
            requested_ns: 33,
            delivered_ns: 44,
            telltale_ns: 50,
            telltale_of: 0,
            histogram: 0,
            missed: 66,
            ended_ns: 0,
            bounded: 88,
        };
        assert_eq!(sum(of_processors(&words)), expected);
        assert_eq!(sum(of_processors(&[])), FunctionStats::default());
        let histograms: Vec<_> = of_processors(&words).map(|stats| stats.histogram).collect();
        assert_eq!(histograms, [9, 4, 0]);
    }
}
