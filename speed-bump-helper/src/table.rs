//! The table of functions: every selected function once, no matter which thread found it; and their callers,
//! if callers are recorded.
//!
//! Threads without a GIL and forked children add to it at the same time, so all accesses are atomic. A number
//! that turned out to be superfluous stays unused: its record never becomes ready.

use core::{hint::spin_loop, sync::atomic::Ordering};

use speed_bump_abi::control_block::{FunctionRecord, notice};

use crate::block::Block;

/// The key of a function, and the generation in which it was looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function<'a> {
    pub(crate) target: u32,
    pub(crate) file: &'a [u8],
    pub(crate) qualname: &'a [u8],
    pub(crate) line: u32,
    pub(crate) generation: u32,
}

/// How often we check a record again that another thread is writing. That thread may have died in the middle.
const PATIENCE: u32 = 10_000;

/// The function's number. `None`: the table is full, which is reported to the user.
pub(crate) fn intern(block: Block, function: &Function<'_>) -> Option<u32> {
    let mut own = None;
    let start = hash(function);
    for step in 0..block.slots() {
        let slot = block.slot(start.wrapping_add(step));
        let mut taken = slot.load(Ordering::Acquire);
        if taken == 0 {
            let number = match own {
                Some(number) => number,
                None => *own.insert(hand_out(block)?),
            };
            match slot.compare_exchange(0, number + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return fill(block, number, function),
                Err(theirs) => taken = theirs,
            }
        }
        let number = taken - 1;
        if block.record(number).is_some_and(|record| is(block, record, function)) {
            return Some(number);
        }
    }
    full(block)
}

/// The longest name of an unselected function, in bytes. The loader would cut a longer one.
const CALLERS_NAME: usize = 4096;

/// Whether there is room for an unselected function with these names: they may fill only the first half of
/// the table.
pub(crate) fn has_room_for_caller(block: Block, names: [&str; 2]) -> bool {
    let head = block.head();
    let is_short = names.iter().all(|name| name.len() <= CALLERS_NAME);
    let bytes: usize = names.iter().map(|name| name.len()).sum();
    let names = head.names.load(Ordering::Relaxed).saturating_add(bytes as u64);
    is_short
        && head.functions.load(Ordering::Relaxed) < block.capacity() / 2
        && names < block.names_capacity() as u64 / 2
}

fn full(block: Block) -> Option<u32> {
    block.notice(notice::TABLE_FULL);
    None
}

fn hand_out(block: Block) -> Option<u32> {
    let functions = &block.head().functions;
    // A count above the capacity tells the loader that the table overflowed. It grows by one at most, so that
    // it never wraps around.
    let next = |count: u32| (count <= block.capacity()).then_some(count + 1);
    let number = functions.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or(u32::MAX);
    if number < block.capacity() { Some(number) } else { full(block) }
}

fn fill(block: Block, number: u32, function: &Function<'_>) -> Option<u32> {
    let record = block.record(number)?;
    let (Some(file), Some(name)) = (write(block, function.file), write(block, function.qualname)) else {
        return full(block);
    };
    record.target.store(function.target, Ordering::Relaxed);
    record.line.store(function.line, Ordering::Relaxed);
    record.name_offset.store(name.0, Ordering::Relaxed);
    record.name_length.store(name.1, Ordering::Relaxed);
    record.file_offset.store(file.0, Ordering::Relaxed);
    record.file_length.store(file.1, Ordering::Relaxed);
    record.generation.store(function.generation, Ordering::Relaxed);
    record.ready.store(1, Ordering::Release);
    Some(number)
}

/// Offset and length of the written name. `None`: there is no room.
fn write(block: Block, name: &[u8]) -> Option<(u32, u32)> {
    let needed = name.len() as u64 + 1;
    let room = block.names_capacity() as u64;
    let next = |used: u64| used.checked_add(needed).filter(|end| *end <= room);
    let offset = block.head().names.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
    block.write_name(usize::try_from(offset).ok()?, name).then_some(())?;
    Some((u32::try_from(offset).ok()?, u32::try_from(name.len()).ok()?))
}

fn is(block: Block, record: &FunctionRecord, function: &Function<'_>) -> bool {
    let mut patience = PATIENCE;
    while record.ready.load(Ordering::Acquire) == 0 {
        if patience == 0 {
            return false;
        }
        patience -= 1;
        spin_loop();
    }
    let number = |field: &core::sync::atomic::AtomicU32| field.load(Ordering::Relaxed);
    let same = number(&record.target) == function.target
        && number(&record.line) == function.line
        && block.name_is(number(&record.name_offset), number(&record.name_length), function.qualname)
        && block.name_is(number(&record.file_offset), number(&record.file_length), function.file);
    if same {
        record.generation.store(function.generation, Ordering::Relaxed);
    }
    same
}

/// FNV-1a.
fn hash(function: &Function<'_>) -> u32 {
    let numbers = [function.target.to_le_bytes(), function.line.to_le_bytes()];
    let bytes = numbers.as_flattened().iter().chain(function.qualname).chain(function.file);
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
