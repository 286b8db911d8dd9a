//! The functions of a loaded BPF object: which policy each has, and what is counted of it.

use std::{io, os::fd::AsFd as _, sync::atomic::Ordering};

use aya::maps::{Map, MapData};
use speed_bump_abi::{FunctionEntry, FunctionStats, maps};

use super::{EngineError, object::Maps};
use crate::sys::{mapped_words::MappedWords, per_cpu_array::PerCpuArray};

/// Entries and counters by function index. Any thread may use it at any time.
#[derive(Debug)]
pub struct FunctionMaps {
    entries: MappedWords,
    stats: PerCpuArray,
}

impl FunctionMaps {
    /// Of a loaded object that has room for so many functions.
    pub(super) fn of(created: &Maps, functions: u32) -> Result<Self, EngineError> {
        let mapping = |name| move |error| EngineError::Mapping { name, error };
        let map = |name: &'static str| match created.get(name)? {
            Map::Array(map) | Map::PerCpuArray(map) => Ok::<&MapData, _>(map),
            _ => Err(EngineError::NoMap { name }),
        };
        let entries = map(maps::FUNCTIONS)?.fd().as_fd();
        Ok(Self {
            entries: MappedWords::of_array(entries, functions as usize).map_err(mapping(maps::FUNCTIONS))?,
            stats: PerCpuArray::of(map(maps::STATS)?).map_err(mapping(maps::STATS))?,
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

    /// Sets the counters of one function to zero, on all CPUs.
    ///
    /// # Errors
    /// What the update returns.
    pub fn clear_stats(&self, function: u32) -> io::Result<()> {
        self.stats.clear(function)
    }
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
    fn counters_add_up_over_cpus_and_the_busiest_tells_the_rest() {
        let words = [[1, 2, 3, 4, 5, 6, 7, 8], [10, 20, 30, 40, 50, 60, 70, 80], [0; 8]].concat();
        let expected = FunctionStats {
            calls: 11,
            delayed: 22,
            requested_ns: 33,
            delivered_ns: 44,
            telltale_ns: 50,
            missed: 66,
            ended_ns: 0,
            telltale_of_ns: 80,
        };
        assert_eq!(sum(&words, 8), expected);
        assert_eq!(sum(&[], 8), FunctionStats::default());
    }
}
