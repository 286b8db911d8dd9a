//! The part of the block with counters, policies and doses.

use core::{
    mem::{align_of, size_of},
    sync::atomic::{AtomicU64, Ordering},
};

use speed_bump_abi::{
    Policy,
    control_block::{Calls, Clock, ControlBlock, DelayCounts, Turns},
};

use super::{Block, fits};

/// Bytes of a row of a policy.
const ROW_BYTES: usize = Policy::WORDS * size_of::<AtomicU64>();

/// The checked offsets of the part for delays.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayLayout {
    calls: usize,
    policies: usize,
    counters: usize,
    histograms: usize,
    policies_capacity: u32,
    pub(super) clock: Clock,
    units_per_ns: u64,
    pub(super) in_children: bool,
}

impl DelayLayout {
    pub(super) fn read(head: &ControlBlock) -> Option<Self> {
        let long = |value: &AtomicU64| usize::try_from(value.load(Ordering::Acquire)).ok();
        Some(Self {
            calls: long(&head.calls_offset)?,
            policies: long(&head.policies_offset)?,
            counters: long(&head.counters_offset)?,
            histograms: long(&head.histograms_offset)?,
            policies_capacity: head.policies_capacity.load(Ordering::Acquire),
            clock: match head.clock.load(Ordering::Acquire) {
                counter if counter == Clock::Counter as u32 => Clock::Counter,
                monotonic if monotonic == Clock::Monotonic as u32 => Clock::Monotonic,
                _ => return None,
            },
            units_per_ns: head.units_per_ns.load(Ordering::Acquire),
            in_children: head.children.load(Ordering::Acquire) != 0,
        })
    }

    pub(super) fn fits(&self, size: usize, functions: u32) -> bool {
        let policies = self.policies_capacity as usize;
        let sizes = (
            (functions as usize).checked_mul(size_of::<Calls>()),
            (functions as usize).checked_mul(size_of::<DelayCounts>()),
            policies.checked_mul(Policy::ROWS as usize * ROW_BYTES),
            policies.checked_mul(size_of::<Turns>()),
        );
        let (Some(calls), Some(histograms), Some(rows), Some(counters)) = sizes else { return false };
        fits(size, self.calls, calls, align_of::<Calls>())
            && fits(size, self.histograms, histograms, align_of::<DelayCounts>())
            && fits(size, self.policies, rows, align_of::<AtomicU64>())
            && fits(size, self.counters, counters, align_of::<Turns>())
    }
}

/// The part of the block with counters, policies and doses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockDelays {
    layout: &'static DelayLayout,
    block: Block,
}

impl BlockDelays {
    /// The counters of a function.
    #[inline]
    pub(crate) fn calls(self, function: u32) -> Option<&'static Calls> {
        // SAFETY: so many fit (`DelayLayout::fits`), and all fields are atomics.
        unsafe { self.block.row(self.layout.calls, function, self.block.0.functions_capacity) }
    }

    /// The histogram of a function's delays.
    #[inline]
    pub(crate) fn delay_counts(self, function: u32) -> Option<&'static DelayCounts> {
        // SAFETY: as above.
        unsafe { self.block.row(self.layout.histograms, function, self.block.0.functions_capacity) }
    }

    /// The row of a policy that applies in a generation.
    #[inline]
    pub(crate) fn policy(self, number: u32, generation: u64) -> Option<Policy> {
        if number >= self.layout.policies_capacity {
            return None;
        }
        let offset = self.layout.policies + Policy::row(number, generation) as usize * ROW_BYTES;
        // SAFETY: inside the block, which was checked as well, aligned, and atomic.
        let words: &[AtomicU64; Policy::WORDS] = unsafe { self.block.0.base.add(offset).cast().as_ref() };
        let [delay, frequency, who, signal] = words;
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Some(Policy::from_words([read(delay), read(frequency), read(who), read(signal)]))
    }

    /// The number of calls that a policy has decided on.
    #[inline]
    pub(crate) fn turns(self, policy: u32) -> Option<&'static Turns> {
        // SAFETY: as above.
        unsafe { self.block.row(self.layout.counters, policy, self.layout.policies_capacity) }
    }

    /// The clock for delays.
    #[inline]
    pub(crate) fn clock(self) -> Clock {
        self.layout.clock
    }

    /// Converts ns to units of the clock.
    #[inline]
    pub(crate) fn units(self, ns: u64) -> u64 {
        let units = (u128::from(ns) * u128::from(self.layout.units_per_ns)) >> 32;
        if units > u128::from(u64::MAX) { u64::MAX } else { units as u64 }
    }

    /// Whether forked children count and delay too.
    #[inline]
    pub(crate) fn in_children(self) -> bool {
        self.layout.in_children
    }
}

impl Block {
    /// The part for delays, if the helper delays.
    #[inline]
    pub(crate) fn delays(self) -> Option<BlockDelays> {
        self.0.delays.as_ref().map(|layout| BlockDelays { layout, block: self })
    }
}
