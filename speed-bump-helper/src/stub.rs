//! Calls the stub, on which a probe may lie.

use core::sync::atomic::Ordering;

use speed_bump_abi::{control_block::StubForm, stub_target};

use crate::{
    arch,
    block::Block,
    delay,
    locks::Lock,
    times::{self, Entering, Kind},
};

/// A reading of the processor's counter.
#[derive(Clone, Copy)]
pub(crate) struct Ticks(u64);

impl Ticks {
    /// The value of the counter.
    #[inline]
    pub(crate) fn count(self) -> u64 {
        self.0
    }
}

/// The counter, now.
#[inline]
pub(crate) fn now() -> Ticks {
    Ticks(arch::ticks())
}

/// The counter, now; `None` if a delay is not likely to start here.
#[inline]
pub(crate) fn now_if_likely() -> Option<Ticks> {
    delay::is_likely().then(now)
}

/// Makes a call of the function visible. `began` is the value of [`now_if_likely`] when the helper heard of
/// the call.
///
/// If the helper itself delays, it does that first: a probe on the stub sees the call when its delay is over.
///
/// A helper with cold caches, for example after its thread slept, needs hundreds of nanoseconds from there to
/// the probe. The probe's program gets this time, and shortens the delay by it.
///
/// Returns whether it delayed the call: then it may have given up the interpreter's lock.
#[inline]
pub(crate) fn enter(block: Block, number: u32, began: Option<Ticks>, lock: Lock) -> bool {
    let Some(record) = block.record(number) else { return false };
    let qualname = block.name_address(record.name_offset.load(Ordering::Relaxed)).cast();
    let file = block.name_address(record.file_offset.load(Ordering::Relaxed)).cast();
    let target = record.target.load(Ordering::Relaxed);
    let line = record.line.load(Ordering::Relaxed);
    let in_place = block.delays();
    let delayed = in_place.is_some_and(|delays| delay::visit(block, delays, number, target, began, lock));
    let form = block.stub_form();
    // No correction if the delay is over: reading the counter takes time, too.
    let ticks = match began {
        Some(began) if in_place.is_none() => arch::ticks().wrapping_sub(began.0),
        _ => 0,
    };
    let ticks = u32::try_from(ticks).unwrap_or(0);
    let target = stub_target(target, block.number());
    match form {
        StubForm::Nop => arch::stub_nop(number, target, qualname, file, line, ticks),
        StubForm::Nop5 => arch::stub_nop5(number, target, qualname, file, line, ticks),
    }
    delayed
}

/// As [`enter`], and starts to time the call if calls are timed. We will recognise the end of the call by
/// `identity`; `caller` finds the number of the calling function.
///
/// The delay is part of the function's time, as if the function were slower.
#[inline]
pub(crate) fn enter_timed(
    block: Block,
    number: u32,
    identity: usize,
    mut began: Option<Ticks>,
    lock: Lock,
    caller: impl FnOnce() -> Option<u32>,
) {
    let timed = block.times().and_then(|_| {
        // From here on, the time for timing the call is part of the delay.
        let began = *began.get_or_insert_with(now);
        times::enter(block, number, Entering { identity, kind: Kind::Begins, began }, caller)
    });
    let delayed = enter(block, number, began, lock);
    if let (Some(timed), false) = (timed, delayed) {
        timed.begins_now();
    }
}
