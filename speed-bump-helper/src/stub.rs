//! Runs into the stub: the moment that a probe sees.

use core::sync::atomic::Ordering;

use speed_bump_abi::control_block::StubForm;

use crate::{arch, block::Block, delay};

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

/// The counter, now; `None` where nobody is likely to need it.
#[inline]
pub(crate) fn now() -> Option<Ticks> {
    delay::is_likely().then(|| Ticks(arch::ticks()))
}

/// Makes a call of the function visible. `began` is [`now`] when the helper heard of the call.
///
/// Where the helper delays itself, it does that first: then whoever has a probe on the stub hears of the call
/// when its delay is over.
///
/// A helper that is cold itself, as after its thread slept, takes hundreds of nanoseconds from there to the
/// probe: the probe's program is told how long, and shortens the delay by it.
#[inline]
pub(crate) fn enter(block: Block, number: u32, began: Option<Ticks>) {
    let Some(record) = block.record(number) else { return };
    let qualname = block.name_address(record.name_offset.load(Ordering::Relaxed)).cast();
    let file = block.name_address(record.file_offset.load(Ordering::Relaxed)).cast();
    let target = record.target.load(Ordering::Relaxed);
    let line = record.line.load(Ordering::Relaxed);
    let in_place = block.delays();
    if let Some(delays) = in_place {
        delay::visit(block, delays, number, target, began);
    }
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
}
