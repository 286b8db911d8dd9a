//! The compiled targets in the block.

use std::{mem::offset_of, os::unix::fs::FileExt as _};

use speed_bump_abi::control_block::ControlBlock;

use super::{Block, BlockError};

impl Block {
    /// Checks that other targets fit into the block.
    ///
    /// # Errors
    /// The targets do not fit.
    pub fn check_room(&self, selector: &[u8]) -> Result<(), BlockError> {
        let room = self.layout.selector_room;
        if selector.len() as u64 > room {
            return Err(BlockError::SelectorTooLong { bytes: selector.len(), room });
        }
        Ok(())
    }

    /// Whether the helper has these targets, and times calls in this stretch. The stretch 0 means that it
    /// does not time calls.
    ///
    /// # Errors
    /// The block is gone.
    pub fn has(&self, selector: &[u8], stretch: u32) -> Result<bool, BlockError> {
        let head = self.head()?;
        if head.u32(offset_of!(ControlBlock, timing)) != stretch
            || head.u64(offset_of!(ControlBlock, selector_length)) != selector.len() as u64
        {
            return Ok(false);
        }
        let mut bytes = vec![0; selector.len()];
        self.read(self.place_of_selector(self.said().generation), &mut bytes)?;
        Ok(bytes == selector)
    }

    /// Gives the helper other targets, which it compares with every function again. Returns the new
    /// generation: [`Report::applied_generation`](super::Report::applied_generation) has this value when the
    /// helper is done.
    ///
    /// # Errors
    /// There is no room, or the block is gone.
    pub fn retarget(&self, selector: &[u8]) -> Result<u32, BlockError> {
        self.check_room(selector)?;
        let mut said = self.said();
        let generation = said.generation.wrapping_add(1);
        let place = self.place_of_selector(generation);
        self.file.write_all_at(selector, place)?;
        self.put_u64(offset_of!(ControlBlock, selector_offset), place)?;
        self.put_u64(offset_of!(ControlBlock, selector_length), selector.len() as u64)?;
        self.put_u32(offset_of!(ControlBlock, generation), generation)?;
        said.generation = generation;
        self.ring(&mut said)?;
        Ok(generation)
    }

    /// Where the selector of a generation lies. Generations alternate between two places, because the helper
    /// may still read the previous selector.
    fn place_of_selector(&self, generation: u32) -> u64 {
        self.layout.selectors[usize::from(generation.is_multiple_of(2))]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::python::helper::block::tests::block;

    #[test]
    fn it_is_known_which_targets_a_helper_was_told() {
        let block = block(10, b"selector");
        assert!(block.has(b"selector", 0).unwrap());
        assert!(!block.has(b"selector", 1).unwrap() && !block.has(b"selectoR", 0).unwrap());
        assert!(!block.has(b"select", 0).unwrap());
        block.retarget(b"another").unwrap();
        assert!(block.has(b"another", 0).unwrap() && !block.has(b"selector", 0).unwrap());
    }
}
