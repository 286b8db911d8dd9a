//! The functions of a loaded BPF object: which policy each has, and what is counted of it.

use std::{
    io,
    os::fd::AsFd as _,
    sync::atomic::{AtomicU64, Ordering},
};

use aya::maps::{Map, MapData};
use speed_bump_abi::{FunctionEntry, FunctionStats, Histogram, maps};

use super::{Capacity, EngineError, object::Maps, times::Times};
use crate::{
    engine::TakeHistogram,
    sys::{mapped_words::MappedWords, per_cpu_array::PerCpuArray},
};

/// Entries and counters by function index. Any thread may use it at any time.
#[derive(Debug)]
pub struct FunctionMaps {
    entries: MappedWords,
    stats: PerCpuArray,
    histograms: MappedWords,
    times: Times,
}

impl FunctionMaps {
    /// Of a loaded object that has room for so many functions and histograms.
    pub(super) fn of(created: &Maps, capacity: &Capacity) -> Result<Self, EngineError> {
        let mapping = |name| move |error| EngineError::Mapping { name, error };
        let map = |name: &'static str| match created.get(name)? {
            Map::Array(map) | Map::PerCpuArray(map) => Ok::<&MapData, _>(map),
            _ => Err(EngineError::NoMap { name }),
        };
        let words = |name, count: u32, of_each| {
            let array = map(name)?.fd().as_fd();
            MappedWords::of_array(array, count.max(1) as usize * of_each).map_err(mapping(name))
        };
        Ok(Self {
            entries: words(maps::FUNCTIONS, capacity.functions, 1)?,
            stats: PerCpuArray::of(map(maps::STATS)?).map_err(mapping(maps::STATS))?,
            histograms: words(maps::HISTOGRAMS, capacity.histograms, Histogram::WORDS)?,
            times: Times::new(words(
                maps::TIMES,
                if capacity.times { capacity.functions } else { 1 },
                Times::WORDS,
            )?),
        })
    }

    /// Says which policy a function has. One that there is no room for has none.
    pub fn set_entry(&self, function: u32, entry: FunctionEntry) {
        if let Some(word) = self.entries.all().get(function as usize) {
            word.store(entry.to_word(), Ordering::Release);
        }
    }

    /// The counters of one function, summed over the CPUs. What is no sum is that of the CPU with most
    /// delays.
    ///
    /// # Errors
    /// `InvalidInput` beyond the capacity.
    pub fn stats(&self, function: u32) -> io::Result<FunctionStats> {
        Ok(self.stats_of(function, 1)?.pop().unwrap_or_default())
    }

    /// The same of consecutive functions.
    ///
    /// # Errors
    /// `InvalidInput` beyond the capacity.
    pub fn stats_of(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>> {
        let mut all = Vec::with_capacity(count as usize);
        self.stats.read(first, count, |words| all.push(sum(words, self.stats.words())))?;
        Ok(all)
    }

    /// Hands out the histograms of consecutive functions, of those that have some, added up over the CPUs.
    ///
    /// # Errors
    /// `InvalidInput` beyond the capacity.
    pub fn histograms_of(&self, first: u32, count: u32, take: &mut TakeHistogram<'_>) -> io::Result<()> {
        let mut function = first;
        self.stats.read(first, count, |words| {
            let mut of_cpus = numbers(words, self.stats.words()).filter_map(|number| self.histogram(number));
            if let Some(words) = of_cpus.next() {
                let mut sum = read(words);
                of_cpus.for_each(|words| sum += read(words));
                take(function, sum);
            }
            function = function.saturating_add(1);
        })
    }

    /// The times of functions.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Sets the counters of one function to zero, on all CPUs. It keeps its histograms, which are empty then.
    ///
    /// # Errors
    /// What the update returns.
    pub fn clear_stats(&self, function: u32) -> io::Result<()> {
        let mut values = Vec::new();
        self.stats.read(function, 1, |words| values = words.to_vec())?;
        for number in numbers(&values, self.stats.words()) {
            let words = self.histogram(number).unwrap_or_default();
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        for words in values.chunks_exact_mut(self.stats.words().max(1)) {
            if let Some(words) = words.first_chunk_mut() {
                let FunctionStats { histogram, .. } = FunctionStats::from_words(*words);
                *words = FunctionStats { histogram, ..FunctionStats::default() }.to_words();
            }
        }
        self.stats.set(function, &mut values)
    }

    /// The words of a histogram; `None` for a number that nobody has.
    fn histogram(&self, number: usize) -> Option<&[AtomicU64]> {
        let first = number.checked_sub(1)?.checked_mul(Histogram::WORDS)?;
        self.histograms.all().get(first..first.checked_add(Histogram::WORDS)?)
    }
}

/// The numbers of a function's histograms, from its counters of all CPUs, each of so many words.
fn numbers(words: &[u64], of_cpu: usize) -> impl Iterator<Item = usize> {
    let of_cpus = words.chunks_exact(of_cpu.max(1)).filter_map(|words| words.first_chunk());
    let numbers = of_cpus.map(|words| FunctionStats::from_words(*words).histogram as usize);
    numbers.filter(|number| *number != 0)
}

fn read(words: &[AtomicU64]) -> Histogram {
    let mut histogram = Histogram::default();
    for (word, atomic) in histogram.words.iter_mut().zip(words) {
        *word = atomic.load(Ordering::Relaxed);
    }
    histogram
}

/// Adds up the counters of all CPUs, each of so many words.
fn sum(words: &[u64], of_cpu: usize) -> FunctionStats {
    let mut sum = FunctionStats::default();
    let mut most = 0;
    for words in words.chunks_exact(of_cpu.max(1)) {
        let stats = words
            .first_chunk()
            .map_or_else(FunctionStats::default, |words| FunctionStats::from_words(*words));
        if stats.delayed > most {
            most = stats.delayed;
            (sum.telltale_ns, sum.telltale_of_ns) = (stats.telltale_ns, stats.telltale_of_ns);
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
        let words = words.concat();
        let expected = FunctionStats {
            calls: 11,
            delayed: 22,
            requested_ns: 33,
            delivered_ns: 44,
            telltale_ns: 50,
            histogram: 0,
            missed: 66,
            ended_ns: 0,
            telltale_of_ns: 80,
        };
        assert_eq!(sum(&words, 8), expected);
        assert_eq!(sum(&[], 8), FunctionStats::default());
        assert_eq!(numbers(&words, 8).collect::<Vec<_>>(), [9, 4]);
    }
}
