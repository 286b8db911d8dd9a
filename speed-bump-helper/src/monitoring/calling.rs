//! Who calls the function that `sys.monitoring` reports.

use core::ptr::NonNull;

use speed_bump_abi::control_block::notice;

use crate::{
    block::Block,
    judge::{Judge, branches},
    python::{code::Code, gil::Python, object::Owned},
};

/// The code of the function that calls the reported one. `None`: no Python function does.
///
/// For this, Python makes frame objects for both functions if they have none: the layout without them differs
/// between versions.
fn calling_code(python: Python<'_>) -> Option<Owned<'_>> {
    let api = python.api;
    let (running, back, code) = (api.running_frame?, api.frame_back?, api.frame_code?);
    // SAFETY: the GIL is held. The running frame is that of the reported function, since native callbacks
    // have none. Every result is an object or null, and ours except for that frame.
    let calling = unsafe {
        let frame = NonNull::new(running())?;
        Owned::from_new(python, back(frame.as_ptr()))
    };
    let Some(calling) = calling else {
        // There is no caller, or no memory for a frame object: that is not an error of the program.
        python.clear();
        return None;
    };
    // SAFETY: the GIL is held; a frame has a code object.
    unsafe { Owned::from_new(python, code(calling.as_ptr())) }
}

/// The number of the function that calls the reported one.
#[inline(never)]
pub(super) fn caller(python: Python<'_>, block: Block) -> Option<u32> {
    let calling = calling_code(python)?;
    // SAFETY: `calling` keeps the code alive until the end of this.
    let code = unsafe { Code::assume(python, NonNull::new(calling.as_ptr())?) };
    let judge = Judge::current()?;
    // No exception is set in a callback of `sys.monitoring`: Python saved the program's own.
    judge.known_caller(code).or_else(|| judge.name_caller(block, code))
}

/// The number that a call counts for, of a function whose targets are for some callers alone.
#[inline(never)]
pub(super) fn by_caller(python: Python<'_>, block: Block, first: u32) -> Option<u32> {
    let api = python.api;
    if api.running_frame.is_none() || api.frame_back.is_none() || api.frame_code.is_none() {
        block.notice(notice::CALLER_UNKNOWN);
    }
    let callers = calling_code(python).and_then(|calling| {
        // SAFETY: `calling` keeps the code alive until the end of this.
        let code = unsafe { Code::assume(python, NonNull::new(calling.as_ptr())?) };
        let judge = Judge::current()?;
        // No exception is set in a callback of `sys.monitoring`: Python saved the program's own.
        Some(judge.known_as_caller(code).unwrap_or_else(|| judge.judge_as_caller(block, code, |_| None)))
    });
    branches::find(block, first, callers.unwrap_or(0))
}
