//! The part of the block with calls by caller.
//!
//! The sums are the process's own claims. We only display them.

use std::mem::{offset_of, size_of};

use speed_bump_abi::{
    callers::{self, CallerRow, PairTimes},
    control_block::ControlBlock,
};

use super::{Block, BlockError, InPlace, word};
use crate::{engine::Pair, python::helper::HelperClock};

/// The size of a row in bytes.
const ROW: usize = size_of::<CallerRow>();
/// The number of rows that we read at once: 256 KiB.
const ROWS_AT_ONCE: u32 = 4_096;

impl Block {
    /// Calls `take` with each pair of a caller and a function, in no particular order. There are no pairs if
    /// the helper does not record callers. Leaves out pairs whose calls have not ended.
    ///
    /// # Errors
    /// The block is gone.
    pub fn callers(&self, mut take: impl FnMut(Pair)) -> Result<(), BlockError> {
        let Some(InPlace { clock, times: true, callers: true, .. }) = self.in_place else { return Ok(()) };
        let mut bytes = vec![0; ROWS_AT_ONCE.min(self.layout.callers_capacity) as usize * ROW];
        for first in (0..self.layout.callers_capacity).step_by(ROWS_AT_ONCE as usize) {
            let left = (self.layout.callers_capacity - first) as usize * ROW;
            let bytes = bytes.get_mut(..left.min(ROWS_AT_ONCE as usize * ROW)).unwrap_or_default();
            self.read(self.layout.callers + u64::from(first) * ROW as u64, bytes)?;
            bytes.chunks_exact(ROW).filter_map(|row| pair(row, clock)).for_each(&mut take);
        }
        Ok(())
    }

    /// The number of calls without a pair, because there was no room for one.
    ///
    /// # Errors
    /// The block is gone.
    pub fn without_caller(&self) -> Result<u64, BlockError> {
        Ok(self.head()?.u64(offset_of!(ControlBlock, callers_without_room)))
    }
}

fn pair(row: &[u8], clock: HelperClock) -> Option<Pair> {
    let word = |offset| word(row, offset);
    let (caller, callee) = callers::pair(word(offset_of!(CallerRow, key)))?;
    let times = PairTimes {
        calls: word(offset_of!(CallerRow, calls)),
        recursive: word(offset_of!(CallerRow, recursive)),
        own_ns: clock.time(word(offset_of!(CallerRow, own))).0,
        cumulative_ns: clock.time(word(offset_of!(CallerRow, cumulative))).0,
    };
    (times.calls > 0).then_some(Pair { caller, callee, times })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::FileExt as _;

    use speed_bump_abi::{
        callers as abi,
        control_block::{HelperCommand, StubForm},
    };

    use super::*;
    use crate::python::helper::{
        Room,
        block::{Contents, tests::memfd},
    };

    fn block(callers: bool) -> Block {
        let clock = HelperClock::MONOTONIC;
        let in_place = InPlace { clock, policies: 1, children: true, times: true, timing: 1, callers };
        let contents = Contents {
            room: Room { functions: 3 },
            selector: b"",
            stub_form: StubForm::Nop,
            command: HelperCommand::Run,
            signals: &[],
            in_place: Some(in_place),
        };
        let file = memfd();
        contents.write(&file).unwrap();
        Block::new(file, &contents).unwrap()
    }

    fn callers(block: &Block) -> Vec<Pair> {
        let mut all = Vec::new();
        block.callers(|pair| all.push(pair)).unwrap();
        all
    }

    #[test]
    fn whatever_a_process_writes_is_read_as_numbers() {
        let block = block(true);
        assert_eq!(callers(&block), []);
        assert_eq!(block.layout.callers_capacity, 16);
        let write = |row: u64, words: [u64; 5]| {
            let bytes = words.map(u64::to_ne_bytes).concat();
            block.file.write_all_at(&bytes, block.layout.callers + row * 64).unwrap();
        };
        write(2, [abi::key(1, 2), 5, 1, 70, 90]);
        write(3, [7, 5, 1, 70, 90]);
        write(15, [u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX]);
        write(4, [abi::key(1, 1), 0, 0, 70, 90]);
        let found = callers(&block);
        let times = PairTimes { calls: 5, recursive: 1, own_ns: 70, cumulative_ns: 90 };
        assert_eq!(found[0], Pair { caller: 1, callee: 2, times });
        assert_eq!((found.len(), found[1].caller, found[1].callee), (2, u32::MAX - 1, u32::MAX));
        block.file.write_all_at(&[0xff; 8], offset_of!(ControlBlock, callers_without_room) as u64).unwrap();
        assert_eq!(block.without_caller().unwrap(), u64::MAX);
    }

    #[test]
    fn without_callers_there_are_none() {
        let block = block(false);
        assert_eq!((block.layout.callers, callers(&block)), (0, vec![]));
    }
}
