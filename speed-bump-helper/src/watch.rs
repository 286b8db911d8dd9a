//! Watches the loader: its bell and its heartbeat.

use core::sync::atomic::Ordering;

use speed_bump_abi::control_block::{LOOK_EVERY_MS, LOOKS_UNTIL_DEAD};

use crate::{
    block::Block,
    sys::{self, Wait},
};

/// The state at the last check.
#[derive(Debug)]
pub(crate) struct Watch {
    bell: u32,
    heartbeat: u32,
    same: u32,
    looks: u32,
}

impl Watch {
    /// Starts to watch.
    pub(crate) fn new(block: Block) -> Self {
        Self {
            bell: block.head().bell.load(Ordering::Acquire),
            heartbeat: block.head().heartbeat.load(Ordering::Acquire),
            same: 0,
            looks: 0,
        }
    }

    /// Waits for the bell, or for the time of the next check. A read of the block's command and generation
    /// after this misses no change. Meanwhile calls `glance`, at the intervals that `every_ms` returns, with
    /// the time since its last call; the wait ends when `glance` returns `false`.
    pub(crate) fn wait(
        &mut self,
        block: Block,
        every_ms: impl Fn() -> u32,
        mut glance: impl FnMut(u32) -> bool,
    ) {
        let bell = &block.head().bell;
        let mut waited_ms = 0;
        while waited_ms < LOOK_EVERY_MS {
            let wait_ms = every_ms().clamp(1, LOOK_EVERY_MS);
            if sys::wait(bell, self.bell, wait_ms) != Wait::TimedOut {
                break;
            }
            waited_ms += wait_ms;
            if !glance(wait_ms) {
                break;
            }
        }
        if waited_ms >= LOOK_EVERY_MS {
            self.look(block);
        }
        self.bell = bell.load(Ordering::Acquire);
    }

    /// Checks the heartbeat, [`LOOK_EVERY_MS`] after the last check or later.
    pub(crate) fn look(&mut self, block: Block) {
        let heartbeat = block.head().heartbeat.load(Ordering::Acquire);
        self.looks = self.looks.wrapping_add(1);
        self.same = if heartbeat == self.heartbeat { self.same.saturating_add(1) } else { 0 };
        self.heartbeat = heartbeat;
    }

    /// Whether the heartbeat has stopped.
    pub(crate) fn loader_is_gone(&self) -> bool {
        self.same >= LOOKS_UNTIL_DEAD
    }

    /// The number of checks, not counting the bell.
    pub(crate) fn looks(&self) -> u32 {
        self.looks
    }
}
