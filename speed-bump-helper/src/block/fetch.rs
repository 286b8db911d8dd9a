//! What a call reads of the block, fetched ahead.

use core::{
    mem::{offset_of, size_of},
    sync::atomic::AtomicU64,
};

use speed_bump_abi::{
    Policy,
    control_block::{Calls, ControlBlock, DelayCounts, FunctionRecord},
};

use super::{Block, LAYOUTS, ROW_BYTES};
use crate::cold;

/// Has all fetched that a delayed call of a function reads and counts, which has this policy. Any numbers will
/// do, as nothing is read.
pub(crate) fn fetch(function: u32, policy: u32) {
    cold::value(&raw const LAYOUTS);
    let Some(block) = Block::current() else { return };
    let base: *const u8 = block.0.base.as_ptr();
    cold::lines(base, 2);
    cold::lines(base.wrapping_add(offset_of!(ControlBlock, control)), 1);
    let item = |start: usize, number: u32, size: usize| {
        base.wrapping_add(start.wrapping_add((number as usize).wrapping_mul(size)))
    };
    cold::lines(item(block.0.functions, function, size_of::<FunctionRecord>()), 1);
    let Some(delays) = &block.0.delays else { return };
    cold::lines(item(delays.calls, function, size_of::<Calls>()), 1);
    // Both of its rows.
    cold::lines(item(delays.policies, policy, Policy::ROWS as usize * ROW_BYTES), 1);
    cold::lines(item(delays.counters, policy, size_of::<AtomicU64>()), 1);
    // Its head, and the delays that are next to exact.
    cold::lines(item(delays.histograms, function, size_of::<DelayCounts>()), 2);
}
