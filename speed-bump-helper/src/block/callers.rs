//! The part of the block that counts calls by caller.

use core::{
    mem::{align_of, size_of},
    slice,
    sync::atomic::Ordering,
};

use speed_bump_abi::{callers::CallerRow, control_block::ControlBlock};

use super::{Block, fits};

/// The checked offsets of the part for callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallersLayout {
    rows: usize,
    /// A power of two.
    capacity: u32,
}

impl CallersLayout {
    /// `None`: the session does not record callers.
    ///
    /// # Errors
    /// The part does not fit into the block.
    pub(super) fn read(head: &ControlBlock, size: usize) -> Result<Option<Self>, ()> {
        let rows = usize::try_from(head.callers_offset.load(Ordering::Acquire)).map_err(drop)?;
        if rows == 0 {
            return Ok(None);
        }
        let capacity = head.callers_capacity.load(Ordering::Acquire);
        let length = (capacity as usize).checked_mul(size_of::<CallerRow>()).ok_or(())?;
        let is_there = capacity.is_power_of_two() && fits(size, rows, length, align_of::<CallerRow>());
        if is_there { Ok(Some(Self { rows, capacity })) } else { Err(()) }
    }
}

/// The part of the block that counts calls by caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockCallers {
    layout: &'static CallersLayout,
    block: Block,
}

impl Block {
    /// The part for callers, if the session records them.
    #[inline]
    pub(crate) fn callers(self) -> Option<BlockCallers> {
        Some(BlockCallers { layout: self.0.callers.as_ref()?, block: self })
    }

    /// Counts a call whose caller is not recorded.
    pub(crate) fn leave_out_caller(self) {
        self.head().callers_without_room.fetch_add(1, Ordering::Relaxed);
    }
}

impl BlockCallers {
    /// The rows.
    #[inline]
    pub(crate) fn rows(self) -> &'static [CallerRow] {
        // SAFETY: inside the block (checked when it was mapped), aligned, all fields are atomics, and never
        // unmapped.
        unsafe {
            let rows = self.block.0.base.add(self.layout.rows).cast::<CallerRow>();
            slice::from_raw_parts(rows.as_ptr(), self.layout.capacity as usize)
        }
    }

    /// How many rows there are.
    #[inline]
    pub(crate) fn capacity(self) -> u32 {
        self.layout.capacity
    }
}
