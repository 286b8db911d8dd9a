//! The hooks of a session that times calls. A call ends when its evaluator returns, for any reason.
//!
//! A hook is called each time that a generator resumes.

use core::{ffi::c_int, ptr::NonNull, sync::atomic::Ordering};

use super::{
    Calling, begin, chain, depth,
    evaluator::{Address, Evaluator38, Evaluator39, Frame},
    frame, is_unselected, key, slot, stack,
};
use crate::{
    block::Block,
    judge::{Judge, Verdict},
    python::{
        api::{Api, ThreadState},
        code::Code,
        gil::Python,
        object::Object,
    },
    stub,
    times::{self, Entering, Kind},
};

/// The hook for a version.
pub(super) fn hook<const OVER: bool>(version: (u8, u8)) -> Address {
    match version {
        (3, 8) => on_frame_38::<OVER> as Evaluator38 as Address,
        (3, 9) => on_frame_39::<{ frame::LAST_38 }, OVER> as Evaluator39 as Address,
        (3, 10) => on_frame_39::<{ frame::LAST_310 }, OVER> as Evaluator39 as Address,
        _ => on_frame_311::<OVER> as Evaluator39 as Address,
    }
}

/// # Safety
/// Python calls it, with the GIL, in place of its evaluator.
unsafe extern "C" fn on_frame_38<const OVER: bool>(frame: *mut Frame, throw: c_int) -> *mut Object {
    slot::is_called(on_frame_38::<OVER> as Evaluator38 as Address);
    // SAFETY: as the caller promises, and the evaluator has the type that 3.8 has.
    unsafe { timed::<{ frame::LAST_38 }>(frame, throw, || chain::go_on_38::<OVER>(frame, throw)) }
}

/// # Safety
/// As [`on_frame_38`].
unsafe extern "C" fn on_frame_39<const LAST: usize, const OVER: bool>(
    thread: *mut ThreadState,
    frame: *mut Frame,
    throw: c_int,
) -> *mut Object {
    slot::is_called(on_frame_39::<LAST, OVER> as Evaluator39 as Address);
    // SAFETY: as the caller promises, and the evaluator has the type that versions from 3.9 on have.
    unsafe { timed::<LAST>(frame, throw, || chain::go_on_39::<OVER>(thread, frame, throw)) }
}

/// # Safety
/// As [`on_frame_38`], up to 3.10.
#[inline]
unsafe fn timed<const LAST: usize>(
    frame: *mut Frame,
    throw: c_int,
    evaluate: impl FnOnce() -> *mut Object,
) -> *mut Object {
    // SAFETY: as the caller promises.
    unsafe {
        let code = frame::code(frame);
        if is_unselected(code) {
            return evaluate();
        }
        let is_timed = if throw == 0 && frame::begins::<LAST>(frame) {
            begin::<true>(Calling::OLD, frame, code)
        } else if chain::has_passed_on(frame) {
            false
        } else {
            resume(Calling::OLD, frame, code)
        };
        let result = evaluate();
        if is_timed {
            end(frame);
        }
        result
    }
}

/// # Safety
/// As [`on_frame_38`].
unsafe extern "C" fn on_frame_311<const OVER: bool>(
    thread: *mut ThreadState,
    frame: *mut Frame,
    throw: c_int,
) -> *mut Object {
    slot::is_called(on_frame_311::<OVER> as Evaluator39 as Address);
    let key = key(thread);
    let calling = Calling::of_311(thread, key);
    // SAFETY: as the caller promises, and the evaluator has the type that versions from 3.9 on have.
    unsafe {
        let code = frame::code(frame);
        let is_timed = if throw == 0 && !frame::has_begun_311(frame, code) {
            begin::<true>(calling, frame, code)
        } else {
            let is_known = is_unselected(code) || chain::has_passed_on(frame);
            !is_known && resume(calling, frame, code)
        };
        let result = if chain::has_next::<OVER>() || stack::is_ample(key) {
            chain::go_on_39::<OVER>(thread, frame, throw)
        } else {
            depth::evaluate(thread, frame, throw)
        };
        if is_timed {
            end(frame);
        }
        result
    }
}

/// A generator or the like resumes. Returns whether it belongs to a selected function.
///
/// # Safety
/// A frame and its code, about to be evaluated, with the GIL.
#[inline(never)]
unsafe fn resume(calling: Calling, frame: *mut Frame, code: *mut Object) -> bool {
    let began = stub::now();
    let (Some(api), Some(block), Some(judge)) = (Api::found(), Block::current(), Judge::current()) else {
        return false;
    };
    let Some(code) = NonNull::new(code) else { return false };
    // SAFETY: as the caller promises.
    let code = unsafe { Code::assume(Python::assume(api), code) };
    let is_current = judge.generation == block.head().generation.load(Ordering::Relaxed);
    let number = match judge.known(code) {
        Some(Verdict::Function(number)) if is_current && block.has_session() => Some(number),
        // A generator's time counts for the function that resumes it.
        Some(Verdict::ByCaller(first)) if is_current && block.has_session() => {
            // SAFETY: as the caller promises.
            unsafe { calling.branch(code.python(), block, frame, first) }
        }
        _ => None,
    };
    let Some(number) = number else { return false };
    // SAFETY: as the caller promises.
    let caller = || unsafe { calling.caller(code.python(), block, frame) };
    let entering = Entering { identity: frame as usize, kind: Kind::Resumes, began };
    if let Some(timed) = times::enter(block, number, entering, caller) {
        timed.begins_now();
    }
    true
}

/// The frame of a timed call has been evaluated.
///
/// # Safety
/// The GIL is held. Only the frame's address is used: the frame may be gone.
#[inline(never)]
unsafe fn end(frame: *mut Frame) {
    let ended = stub::now();
    let Some(block) = Block::current() else { return };
    if !times::leave(block, frame as usize, ended) {
        times::leave_out_of_turn(block, frame as usize, ended);
    }
}
