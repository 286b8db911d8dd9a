//! The part of the block in which the helper adds up who calls whom.

use core::{
    mem::{align_of, size_of},
    sync::atomic::Ordering,
};

use speed_bump_abi::{
    callers::{self, CallerRow},
    control_block::ControlBlock,
};

use super::{Block, fits};

/// Where the rows are, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallersLayout {
    rows: usize,
    /// A power of two.
    capacity: u32,
}

impl CallersLayout {
    /// `None`: callers are not recorded.
    ///
    /// # Errors
    /// It does not fit.
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

/// Where it is added up who calls whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockCallers {
    layout: &'static CallersLayout,
    block: Block,
}

/// Where a pair of functions is, or can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Its(u32),
    Nobodys(u32),
    Nowhere,
}

impl Block {
    /// Where it is added up who calls whom, if it is.
    #[inline]
    pub(crate) fn callers(self) -> Option<BlockCallers> {
        Some(BlockCallers { layout: self.0.callers.as_ref()?, block: self })
    }
}

impl BlockCallers {
    /// How many rows there are.
    #[inline]
    pub(crate) fn capacity(self) -> u32 {
        self.layout.capacity
    }

    /// A row.
    #[inline]
    pub(crate) fn row(self, number: u32) -> Option<&'static CallerRow> {
        if number >= self.layout.capacity {
            return None;
        }
        let offset = self.layout.rows + number as usize * size_of::<CallerRow>();
        // SAFETY: inside the block (checked when it was mapped), aligned, all fields are atomics.
        Some(unsafe { self.block.0.base.add(offset).cast().as_ref() })
    }

    /// The number of the row of a pair, which it has from here on. `None`: there is no room.
    #[inline]
    pub(crate) fn number(self, caller: u32, callee: u32) -> Option<u32> {
        let key = callers::key(caller, callee);
        loop {
            let number = match self.find(key) {
                Place::Its(number) => return Some(number),
                Place::Nobodys(number) => number,
                Place::Nowhere => return None,
            };
            let before = &self.row(number)?.key;
            match before.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(theirs) if theirs == key => return Some(number),
                // Another thread's or process's pair came first.
                Err(_) => {}
            }
        }
    }

    /// Whether a pair has a row.
    #[inline]
    pub(crate) fn has(self, caller: u32, callee: u32) -> bool {
        matches!(self.find(callers::key(caller, callee)), Place::Its(_))
    }

    #[inline]
    fn find(self, key: u64) -> Place {
        for number in callers::places(key, self.layout.capacity) {
            match self.row(number).map(|row| row.key.load(Ordering::Acquire)) {
                Some(0) => return Place::Nobodys(number),
                Some(theirs) if theirs == key => return Place::Its(number),
                _ => {}
            }
        }
        Place::Nowhere
    }
}
