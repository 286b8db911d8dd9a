//! The part of the block with counters, policies and doses.
//!
//! The counters are the process's own claims. We only display them.

use std::{
    io,
    mem::{offset_of, size_of},
    sync::atomic::AtomicU64,
};

use speed_bump_abi::{
    Bound, Control, FunctionEntry, FunctionStats, Histogram, Policy,
    control_block::{Calls, Clock, ControlBlock, DelayCounts, Delays},
};

use super::{Block, BlockError, Contents, word};
use crate::{
    engine::bpf::switch::Mirror,
    python::helper::{clock::HelperClock, layout::Layout},
    units::Nanos,
};

const WORD: usize = size_of::<u64>();
/// The most delays that we believe. No process has more, and the sum over all words of a thousand processes
/// does not overflow.
const MAX_DELAYS: u64 = 1 << 45;

/// How the helper delays without a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The clock of the helper.
    pub clock: HelperClock,
    /// The most policies.
    pub policies: u32,
    /// Whether forked children are delayed too.
    pub children: bool,
    /// Whether the helper can time calls.
    pub times: bool,
    /// The first stretch of timed calls; 0 if the helper does not time calls at first. See
    /// [`Block::set_timing`].
    pub timing: u32,
    /// Whether the helper records callers while it times calls.
    pub callers: bool,
}

/// Writes the control words and policies for a helper that delays by itself.
pub(super) fn write(
    contents: &Contents<'_>,
    layout: &Layout,
    put_u32: impl Fn(usize, u32) -> io::Result<()>,
    put_u64: impl Fn(usize, u64) -> io::Result<()>,
) -> io::Result<()> {
    let Some(InPlace { clock, policies, children, timing, .. }) = contents.in_place else { return Ok(()) };
    put_u32(offset_of!(ControlBlock, delays), Delays::InPlace as u32)?;
    put_u32(offset_of!(ControlBlock, clock), clock.kind() as u32)?;
    put_u32(offset_of!(ControlBlock, children), u32::from(children))?;
    put_u64(offset_of!(ControlBlock, units_per_ns), clock.units_per_ns())?;
    put_u64(offset_of!(ControlBlock, calls_offset), layout.calls)?;
    put_u64(offset_of!(ControlBlock, histograms_offset), layout.histograms)?;
    put_u64(offset_of!(ControlBlock, policies_offset), layout.policies)?;
    put_u64(offset_of!(ControlBlock, counters_offset), layout.counters)?;
    put_u64(offset_of!(ControlBlock, times_offset), layout.times)?;
    put_u32(offset_of!(ControlBlock, timing), timing)?;
    put_u64(offset_of!(ControlBlock, callers_offset), layout.callers)?;
    put_u32(offset_of!(ControlBlock, callers_capacity), layout.callers_capacity)?;
    put_u32(offset_of!(ControlBlock, policies_capacity), policies)
}

impl Block {
    /// Whether the helper delays by itself.
    pub fn delays_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// The helper's counts for `count` functions from `first` on; zeros beyond the capacity.
    ///
    /// # Errors
    /// The block is gone.
    pub fn calls(&self, first: u32, count: u32) -> Result<Vec<FunctionStats>, BlockError> {
        let mut all = vec![FunctionStats::default(); count as usize];
        let Some(InPlace { clock, .. }) = self.in_place else { return Ok(all) };
        let there = self.layout.functions_capacity.saturating_sub(first).min(count) as usize;
        let mut bytes = vec![0; there * size_of::<Calls>()];
        self.read(self.place_of_calls(first), &mut bytes)?;
        for (stats, bytes) in all.iter_mut().zip(bytes.chunks_exact(size_of::<Calls>())) {
            let word = |offset| word(bytes, offset);
            *stats = FunctionStats {
                calls: word(offset_of!(Calls, calls)).wrapping_add(word(offset_of!(Calls, own_calls))),
                delayed: word(offset_of!(Calls, delayed)),
                requested_ns: word(offset_of!(Calls, requested_ns)),
                delivered_ns: clock.time(word(offset_of!(Calls, delivered))).0,
                bounded: word(offset_of!(Calls, bounded)),
                ..FunctionStats::default()
            };
        }
        Ok(all)
    }

    /// The thread pointer of the thread that last called a function, as the helper claims. `None` if no
    /// thread called it.
    ///
    /// # Errors
    /// The block is gone.
    pub fn last_caller(&self, function: u32) -> Result<Option<u64>, BlockError> {
        if self.in_place.is_none() || function >= self.layout.functions_capacity {
            return Ok(None);
        }
        let mut bytes = [0; WORD];
        self.read(self.place_of_calls(function) + offset_of!(Calls, thread) as u64, &mut bytes)?;
        Ok(Some(u64::from_ne_bytes(bytes)).filter(|pointer| *pointer != 0))
    }

    /// The histogram of a function's delays, as the helper claims. No count is more than a process can have.
    ///
    /// # Errors
    /// The block is gone.
    pub fn histogram(&self, function: u32) -> Result<Histogram, BlockError> {
        let mut histogram = Histogram::default();
        if self.in_place.is_none() || function >= self.layout.functions_capacity {
            return Ok(histogram);
        }
        let mut bytes = [0; size_of::<DelayCounts>()];
        let place = self.layout.histograms + u64::from(function) * size_of::<DelayCounts>() as u64;
        self.read(place, &mut bytes)?;
        for (word, bytes) in histogram.words.iter_mut().zip(bytes.chunks_exact(WORD)) {
            // Greater counts would saturate the sums, and every median would lie in this bucket.
            *word = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)).min(MAX_DELAYS);
        }
        Ok(histogram)
    }

    /// Sets a function's policy.
    ///
    /// # Errors
    /// The block is gone.
    pub fn set_entry(&self, function: u32, entry: FunctionEntry) -> Result<(), BlockError> {
        if self.in_place.is_none() || function >= self.layout.functions_capacity {
            return Ok(());
        }
        let place = self.place_of_calls(function) + offset_of!(Calls, entry) as u64;
        Ok(self.file_write(place, &entry.to_word().to_ne_bytes())?)
    }

    /// The cost of a call with a delay of 0, as measured by the helper; `None` if the helper has not measured
    /// it yet.
    ///
    /// # Errors
    /// The block is gone.
    pub fn floor(&self) -> Result<Option<Nanos>, BlockError> {
        let floor = self.get_u32(offset_of!(ControlBlock, floor))?;
        let clock = self.in_place.map(|in_place| in_place.clock);
        let is_known = floor != 0 && clock.is_some_and(|clock| clock.kind() == Clock::Counter);
        Ok(clock.filter(|_| is_known).map(|clock| clock.time(u64::from(floor))))
    }

    fn place_of_calls(&self, function: u32) -> u64 {
        self.layout.calls + u64::from(function) * size_of::<Calls>() as u64
    }

    fn put_control(&self, number: usize, value: u64) -> io::Result<()> {
        let place = offset_of!(ControlBlock, control) + number * size_of::<AtomicU64>();
        self.file_write(place as u64, &value.to_ne_bytes())
    }
}

impl Mirror for Block {
    fn write_policy(&self, number: u32, generation: u64, policy: Policy) -> io::Result<()> {
        if self.in_place.is_none_or(|in_place| number >= in_place.policies) {
            return Ok(());
        }
        let row = u64::from(Policy::row(number, generation)) * (Policy::WORDS * WORD) as u64;
        // We write word by word, so that another reader always finds each word complete.
        for (place, word) in (self.layout.policies + row..).step_by(WORD).zip(policy.to_words()) {
            self.file_write(place, &word.to_ne_bytes())?;
        }
        Ok(())
    }

    fn write_control(&self, control: Control) -> io::Result<()> {
        let Some(InPlace { clock, .. }) = self.in_place else { return Ok(()) };
        let at = |ns| clock.at(Nanos(ns));
        let (start_ns, end_ns, expires_ns) =
            (at(control.start_ns), at(control.end_ns), at(control.expires_ns));
        let bound = Bound { room: clock.units(Nanos(control.bound.room)), ..control.bound };
        let words = Control { start_ns, end_ns, expires_ns, bound, ..control }.to_words();
        // We write the bound first, so that no delay comes before it. We write the generation last, when all
        // other words are complete.
        let generation = Control::GENERATION;
        let is_bound = |number: &usize| Control::BOUND.contains(number);
        let others = (0..words.len()).filter(|number| *number != generation && !is_bound(number));
        for number in Control::BOUND.rev().chain(others).chain([generation]) {
            self.put_control(number, words[number])?;
        }
        Ok(())
    }
}
