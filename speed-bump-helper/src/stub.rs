//! Runs into the stub: the moment that a probe sees.

use core::sync::atomic::Ordering;

use speed_bump_abi::control_block::StubForm;

use crate::{arch, block::Block};

/// Makes a call of the function visible.
#[inline]
pub(crate) fn enter(block: Block, number: u32) {
    let Some(record) = block.record(number) else { return };
    let qualname = block.name_address(record.name_offset.load(Ordering::Relaxed)).cast();
    let file = block.name_address(record.file_offset.load(Ordering::Relaxed)).cast();
    let target = record.target.load(Ordering::Relaxed);
    let line = record.line.load(Ordering::Relaxed);
    match block.stub_form() {
        StubForm::Nop => arch::stub_nop(number, target, qualname, file, line),
        StubForm::Nop5 => arch::stub_nop5(number, target, qualname, file, line),
    }
}
