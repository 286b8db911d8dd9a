//! The part of the block that adds up times.

use core::{
    mem::{align_of, size_of},
    sync::atomic::Ordering,
};

use speed_bump_abi::{
    control_block::{Clock, ControlBlock},
    times::TimeRow,
};

use super::{Block, delays::DelayLayout, fits};
use crate::times;

/// The checked offsets of the part for times.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimesLayout {
    rows: usize,
}

impl TimesLayout {
    /// `None`: the session never times calls.
    ///
    /// # Errors
    /// The part does not fit into the block.
    pub(super) fn read(head: &ControlBlock, size: usize, functions: u32) -> Result<Option<Self>, ()> {
        let rows = usize::try_from(head.times_offset.load(Ordering::Acquire)).map_err(drop)?;
        if rows == 0 {
            return Ok(None);
        }
        let length = (functions as usize).checked_mul(size_of::<TimeRow>()).ok_or(())?;
        if fits(size, rows, length, align_of::<TimeRow>()) { Ok(Some(Self { rows })) } else { Err(()) }
    }
}

/// The part of the block that adds up times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockTimes {
    layout: &'static TimesLayout,
    delays: &'static DelayLayout,
    block: Block,
}

impl Block {
    /// The part for times, if calls are timed now.
    #[inline]
    pub(crate) fn times(self) -> Option<BlockTimes> {
        let (layout, delays) = (self.0.times.as_ref()?, self.0.delays.as_ref()?);
        let is_on = times::is_on(self.head().timing.load(Ordering::Relaxed));
        is_on.then_some(BlockTimes { layout, delays, block: self })
    }

    /// The stretch of timed calls that the loader wants; 0: none.
    pub(crate) fn stretch(self) -> u32 {
        if self.0.times.is_some() { self.head().timing.load(Ordering::Acquire) } else { 0 }
    }
}

impl BlockTimes {
    /// The row of a function.
    #[inline]
    pub(crate) fn row(self, function: u32) -> Option<&'static TimeRow> {
        // SAFETY: so many fit (`TimesLayout::read`), and all fields are atomics.
        unsafe { self.block.row(self.layout.rows, function, self.block.0.functions_capacity) }
    }

    /// The clock for times.
    #[inline]
    pub(crate) fn clock(self) -> Clock {
        self.delays.clock
    }

    /// Whether forked children time calls too.
    #[inline]
    pub(crate) fn in_children(self) -> bool {
        self.delays.in_children
    }
}
