//! The part of the block with times.
//!
//! The sums are the process's own claims. We only display them.

use std::{
    mem::{offset_of, size_of},
    sync::atomic::Ordering,
};

use speed_bump_abi::{
    control_block::ControlBlock,
    times::{FunctionTimes, TimeRow},
};

use super::{Block, BlockError, InPlace, word};
use crate::stats::times::Untimed;

impl Block {
    /// The sums of times for `count` functions from `first` on; zeros beyond the capacity. `None` if the
    /// helper has never timed calls.
    ///
    /// # Errors
    /// The block is gone.
    pub fn times(&self, first: u32, count: u32) -> Result<Option<Vec<FunctionTimes>>, BlockError> {
        let Some(InPlace { clock, times: true, .. }) = self.in_place else { return Ok(None) };
        if !self.has_timed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut all = vec![FunctionTimes::default(); count as usize];
        let there = self.layout.functions_capacity.saturating_sub(first).min(count) as usize;
        let mut bytes = vec![0; there * size_of::<TimeRow>()];
        self.read(self.layout.times + u64::from(first) * size_of::<TimeRow>() as u64, &mut bytes)?;
        for (times, bytes) in all.iter_mut().zip(bytes.chunks_exact(size_of::<TimeRow>())) {
            let word = |offset| word(bytes, offset);
            *times = FunctionTimes {
                recursive: word(offset_of!(TimeRow, recursive)),
                resumed: word(offset_of!(TimeRow, resumed)),
                recursive_resumed: word(offset_of!(TimeRow, recursive_resumed)),
                own_ns: clock.time(word(offset_of!(TimeRow, own))).0,
                cumulative_ns: clock.time(word(offset_of!(TimeRow, cumulative))).0,
            };
        }
        Ok(Some(all))
    }

    /// Starts a stretch of timed calls with this number; 0 stops timing. The helper applies this at the next
    /// [`Block::retarget`]. Has no effect if the helper cannot time calls.
    ///
    /// # Errors
    /// The block is gone.
    pub fn set_timing(&self, stretch: u32) -> Result<(), BlockError> {
        if !self.in_place.is_some_and(|in_place| in_place.times) {
            return Ok(());
        }
        self.put_u32(offset_of!(ControlBlock, timing), stretch)?;
        self.has_timed.fetch_or(stretch != 0, Ordering::Relaxed);
        Ok(())
    }

    /// The number of calls whose times are in no sum.
    ///
    /// # Errors
    /// The block is gone.
    pub fn untimed(&self) -> Result<Untimed, BlockError> {
        let head = self.head()?;
        Ok(Untimed {
            unmatched: head.u64(offset_of!(ControlBlock, times_unmatched)),
            without_room: head.u64(offset_of!(ControlBlock, times_without_room)),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::FileExt as _;

    use speed_bump_abi::control_block::{HelperCommand, StubForm};

    use super::*;
    use crate::python::helper::{
        HelperClock, Room,
        block::{Contents, tests::memfd},
    };

    fn block(times: bool) -> Block {
        let timing = u32::from(times);
        let clock = HelperClock::MONOTONIC;
        let in_place = InPlace { clock, policies: 1, children: true, times, timing, callers: false };
        block_of(in_place)
    }

    fn block_of(in_place: InPlace) -> Block {
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

    #[test]
    fn whatever_a_process_writes_is_read_as_numbers() {
        let block = block(true);
        assert_eq!(block.times(0, 3).unwrap().unwrap(), [FunctionTimes::default(); 3]);
        let row = [1, 2, 3, u64::MAX, u64::MAX - 1].map(u64::to_ne_bytes).concat();
        block.file.write_all_at(&row, block.layout.times + 128).unwrap();
        let times = block.times(1, 9).unwrap().unwrap();
        let expected = FunctionTimes {
            recursive: 1,
            resumed: 2,
            recursive_resumed: 3,
            own_ns: u64::MAX,
            cumulative_ns: u64::MAX - 1,
        };
        assert_eq!((times.len(), times[1]), (9, expected));
        assert_eq!(times[2..], [FunctionTimes::default(); 7], "beyond the room");
        assert_eq!(block.times(u32::MAX, 1).unwrap().unwrap().len(), 1);
        block.file.write_all_at(&[0xff; 16], offset_of!(ControlBlock, times_unmatched) as u64).unwrap();
        let untimed = Untimed { unmatched: u64::MAX, without_room: u64::MAX };
        assert_eq!(block.untimed().unwrap(), untimed);
    }

    #[test]
    fn calls_that_are_not_timed_yet_have_no_times() {
        let clock = HelperClock::MONOTONIC;
        let in_place = InPlace { clock, policies: 1, children: true, times: true, timing: 0, callers: false };
        let block = block_of(in_place);
        let timing = || block.get_u32(offset_of!(ControlBlock, timing)).unwrap();
        assert_eq!((block.times(0, 1).unwrap(), timing()), (None, 0));
        block.set_timing(1).unwrap();
        assert_eq!((block.times(0, 1).unwrap().map(|times| times.len()), timing()), (Some(1), 1));
        block.set_timing(0).unwrap();
        assert_eq!(block.times(0, 1).unwrap().map(|times| times.len()), Some(1), "what was timed stays");
    }

    #[test]
    fn without_times_there_are_none() {
        let block = block(false);
        block.set_timing(1).unwrap();
        assert_eq!(block.layout.times, 0);
        assert_eq!(block.times(0, 3).unwrap(), None);
    }
}
