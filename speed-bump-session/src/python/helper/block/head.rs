//! Reads the head of the block.

use std::mem::size_of;

use speed_bump_abi::control_block::ControlBlock;

use super::{Block, BlockError};

/// The bytes of a [`ControlBlock`] at one moment.
pub(super) struct Head([u8; size_of::<ControlBlock>()]);

impl Head {
    /// The four-byte word at an offset in the head; 0 outside.
    pub(super) fn u32(&self, offset: usize) -> u32 {
        let bytes = self.0.get(offset..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// The eight-byte word at an offset in the head; 0 outside.
    pub(super) fn u64(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

impl Block {
    /// Reads the whole head with one system call, because we poll it.
    pub(super) fn head(&self) -> Result<Head, BlockError> {
        let mut head = Head([0; size_of::<ControlBlock>()]);
        self.read(0, &mut head.0)?;
        Ok(head)
    }
}
