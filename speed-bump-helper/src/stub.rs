//! Runs into the stub: the moment that a probe sees.

use core::sync::atomic::Ordering;

use speed_bump_abi::control_block::StubForm;

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
    /// What the counter stood at.
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

/// The same; `None` where no delay is likely to begin here.
#[inline]
pub(crate) fn now_if_likely() -> Option<Ticks> {
    delay::is_likely().then(now)
}

/// Makes a call of the function visible. `began` is [`now_if_likely`] when the helper heard of the call.
///
/// Where the helper delays itself, it does that first: then whoever has a probe on the stub hears of the call
/// when its delay is over.
///
/// A helper that is cold itself, as after its thread slept, takes hundreds of nanoseconds from there to the
/// probe: the probe's program is told how long, and shortens the delay by it.
///
/// Whether the call was delayed here: then the interpreter's lock may have been given up.
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
    // Nobody makes up for them where the delay is over: the counter takes its time, too.
    let ticks = match began {
        Some(began) if in_place.is_none() => arch::ticks().wrapping_sub(began.0),
        _ => 0,
    };
    let ticks = u32::try_from(ticks).unwrap_or(0);
    match form {
        StubForm::Nop => arch::stub_nop(number, target, qualname, file, line, ticks),
        StubForm::Nop5 => arch::stub_nop5(number, target, qualname, file, line, ticks),
    }
    delayed
}

/// The same, and begins to time the call where calls are timed. `identity` is what its end will be known by,
/// and `caller` finds the number of the function that calls.
///
/// The delay is part of the function: a slower one would take as long.
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
        // From here on, what it takes to time the call is part of the delay.
        let began = *began.get_or_insert_with(now);
        times::enter(block, number, Entering { identity, kind: Kind::Begins, began }, caller)
    });
    let delayed = enter(block, number, began, lock);
    if let (Some(timed), false) = (timed, delayed) {
        timed.begins_now();
    }
}
