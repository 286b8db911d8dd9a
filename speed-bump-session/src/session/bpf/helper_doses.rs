//! The engine `helper` in a session. Its counters are in the blocks that the session shares with helpers. Its
//! doses reach helpers through the mirrors of the [`PolicySwitch`].

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use speed_bump_abi::{FunctionEntry, FunctionStats, times::FunctionTimes};

use crate::{
    engine::{
        Counters, Engine, EngineKind, NumberedDose, Pair, Policies, SetError, TakeHistogram, TakePair,
        bpf::{doses::policy_of, switch::PolicySwitch},
        signal::UnderWay,
    },
    policy::DelayBound,
    python::helper::Block,
    session::functions::FunctionRange,
    units::Nanos,
};

/// The block that counts each range of function indices. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub(super) struct HelperRanges(Arc<Mutex<BTreeMap<u32, Counted>>>);

/// A range of indices, and the block that counts them.
#[derive(Clone, Debug)]
struct Counted {
    range: FunctionRange,
    block: Weak<Block>,
}

impl HelperRanges {
    /// Adds the indices of a helper that delays by itself.
    pub(super) fn add(&self, range: FunctionRange, block: &Arc<Block>) {
        self.lock().insert(range.first, Counted { range, block: Arc::downgrade(block) });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Counted>> {
        // No code that holds the lock can panic halfway, so the data is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ranges of helpers that are still loaded, each with its block.
    fn with_blocks(&self) -> Vec<(FunctionRange, Arc<Block>)> {
        let with_block = |of: &Counted| Some((of.range, of.block.upgrade()?));
        self.lock().values().filter_map(with_block).collect()
    }

    /// The block that counts the function with this index, and the function's number in the block.
    fn counted(&self, index: u32) -> Option<(Counted, u32)> {
        let ranges = self.lock();
        let (first, counted) = ranges.range(..=index).next_back()?;
        let number = index.checked_sub(*first).filter(|number| *number < counted.range.count)?;
        Some((counted.clone(), number))
    }
}

/// The engine where helpers do all counting and delaying, and no BPF program reads policies.
#[derive(Debug)]
pub(super) struct NoPrograms(pub(super) Arc<PolicySwitch>);

impl Policies for NoPrograms {
    fn check(&self, _doses: &[NumberedDose]) -> Result<(), SetError> {
        Ok(())
    }

    fn set(&mut self, doses: &[NumberedDose]) -> Result<Nanos, SetError> {
        let policies: Vec<_> = doses.iter().map(|(number, dose)| (*number, policy_of(*dose))).collect();
        Ok(self.0.set(&policies)?)
    }

    fn assign(&mut self, _function: u32, _number: Option<u32>) {}

    fn set_bound(&mut self, bound: DelayBound) -> Result<(), SetError> {
        self.0.set_bound(bound);
        Ok(())
    }

    fn spins(&self, _delay: Nanos) -> EngineKind {
        EngineKind::Helper
    }
}

impl Counters for NoPrograms {
    fn read(&self, _first: u32, _count: u32) -> io::Result<Vec<FunctionStats>> {
        Ok(Vec::new())
    }

    fn histograms(&self, _first: u32, _count: u32, _take: &mut TakeHistogram<'_>) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self, _function: u32) -> io::Result<()> {
        Ok(())
    }
}

/// The doses of a session with helpers that delay by themselves. Indices from `first` on belong to helpers,
/// and all others to the engine `inner`.
#[derive(Debug)]
pub(super) struct HelperDoses {
    pub(super) inner: Box<dyn Engine>,
    pub(super) ranges: HelperRanges,
    pub(super) first: u32,
}

impl Policies for HelperDoses {
    fn check(&self, doses: &[NumberedDose]) -> Result<(), SetError> {
        self.inner.check(doses)
    }

    fn pause(&mut self, doses: &[NumberedDose]) -> Result<UnderWay, SetError> {
        self.inner.pause(doses)
    }

    fn set(&mut self, doses: &[NumberedDose]) -> Result<Nanos, SetError> {
        self.inner.set(doses)
    }

    fn assign(&mut self, function: u32, number: Option<u32>) {
        if function < self.first {
            return self.inner.assign(function, number);
        }
        let Some((counted, function)) = self.ranges.counted(function) else { return };
        let entry = number.map_or(FunctionEntry::NONE, FunctionEntry::of);
        if let Some(block) = counted.block.upgrade()
            && let Err(error) = block.set_entry(function, entry)
        {
            tracing::debug!("function {function} of a helper keeps its dose: {error}");
        }
    }

    fn set_bound(&mut self, bound: DelayBound) -> Result<(), SetError> {
        self.inner.set_bound(bound)
    }

    fn spins(&self, delay: Nanos) -> EngineKind {
        self.inner.spins(delay)
    }
}

impl Counters for HelperDoses {
    fn read(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>> {
        let end = first.saturating_add(count);
        let of_inner = end.min(self.first).saturating_sub(first);
        let mut all = if of_inner > 0 { self.inner.read(first, of_inner)? } else { Vec::new() };
        let mut next = first.saturating_add(of_inner);
        while next < end {
            let (stats, taken) = match self.ranges.counted(next) {
                Some((counted, number)) => {
                    let taken = (counted.range.count - number).min(end - next);
                    // If the block is gone, its process has ended, and counts nothing new.
                    let block = counted.block.upgrade();
                    let calls = block.map(|block| block.calls(number, taken)).transpose();
                    (calls.map_err(io::Error::other)?.unwrap_or_default(), taken)
                }
                None => (Vec::new(), 1),
            };
            let missing = (taken as usize).saturating_sub(stats.len());
            all.extend(stats);
            all.extend(std::iter::repeat_n(FunctionStats::default(), missing));
            next = next.saturating_add(taken);
        }
        Ok(all)
    }

    fn histograms(&self, first: u32, count: u32, take: &mut TakeHistogram<'_>) -> io::Result<()> {
        let end = first.saturating_add(count);
        let of_inner = end.min(self.first).saturating_sub(first);
        if of_inner > 0 {
            self.inner.histograms(first, of_inner, take)?;
        }
        let helpers = first.saturating_add(of_inner);
        // We read the short counts first: most functions have no delays, so we do not need their long
        // histograms.
        let stats = if helpers < end { self.read(helpers, end - helpers)? } else { Vec::new() };
        for (function, _) in (helpers..).zip(stats).filter(|(_, stats)| stats.delayed > 0) {
            if let Some((counted, number)) = self.ranges.counted(function)
                && let Some(block) = counted.block.upgrade()
            {
                take(function, block.histogram(number).map_err(io::Error::other)?);
            }
        }
        Ok(())
    }

    fn times(&self, first: u32, count: u32) -> io::Result<Vec<Option<FunctionTimes>>> {
        let end = first.saturating_add(count);
        let of_inner = end.min(self.first).saturating_sub(first);
        let mut all = if of_inner > 0 { self.inner.times(first, of_inner)? } else { Vec::new() };
        all.resize(count as usize, None);
        let mut next = first.max(self.first);
        while next < end {
            let Some((counted, number)) = self.ranges.counted(next) else {
                next = next.saturating_add(1);
                continue;
            };
            let taken = (counted.range.count - number).min(end - next);
            let block = counted.block.upgrade();
            let times = block.map(|block| block.times(number, taken)).transpose();
            let times = times.map_err(io::Error::other)?.flatten().unwrap_or_default();
            let places = all.iter_mut().skip((next - first) as usize);
            places.zip(times).for_each(|(place, times)| *place = Some(times));
            next = next.saturating_add(taken);
        }
        Ok(all)
    }

    fn callers(&self, first: u32, count: u32, take: &mut TakePair<'_>) -> io::Result<()> {
        let asked = first..first.saturating_add(count);
        for (range, block) in self.ranges.with_blocks() {
            let touches = range.first < asked.end && range.first.saturating_add(range.count) > asked.start;
            if !touches {
                continue;
            }
            let of_block = block.callers(|pair| {
                if let (Some(caller), Some(callee)) = (range.index(pair.caller), range.index(pair.callee))
                    && asked.contains(&callee)
                {
                    take(Pair { caller, callee, ..pair });
                }
            });
            of_block.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn last_caller(&self, function: u32) -> io::Result<Option<u64>> {
        let Some((counted, number)) = self.ranges.counted(function).filter(|_| function >= self.first) else {
            return Ok(None);
        };
        let caller = counted.block.upgrade().map(|block| block.last_caller(number)).transpose();
        Ok(caller.map_err(io::Error::other)?.flatten())
    }

    fn clear(&mut self, function: u32) -> io::Result<()> {
        // When a range is used again, it gets a new block. So we must clear only counters of `inner`.
        if function < self.first { self.inner.clear(function) } else { Ok(()) }
    }
}
