//! The hook of another tool that ours came after: it is asked to evaluate frames, and is put back in the end.
//! Only one of our hooks does that; the other one has CPython evaluate. So whoever finds the other one and
//! puts it back later has nothing called that has gone since.

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use super::{
    evaluator::{self, Address, Evaluator38, Evaluator39, Frame},
    slot,
};
use crate::python::{api::ThreadState, object::Object};

/// That hook. Null: there is none.
static CHAINED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The frame that was given to it last, while it is at it.
static PASSED_ON: AtomicPtr<Frame> = AtomicPtr::new(ptr::null_mut());

/// Remembers the hook, before which ours is set.
pub(super) fn to(hook: Address) {
    CHAINED.store(hook, Ordering::Release);
}

/// There is none any more.
pub(super) fn forget() {
    CHAINED.store(ptr::null_mut(), Ordering::Release);
}

/// Whether there is one.
pub(super) fn is_there() -> bool {
    !CHAINED.load(Ordering::Acquire).is_null()
}

/// What evaluated frames before ours came.
pub(super) fn before() -> Address {
    let chained = CHAINED.load(Ordering::Acquire);
    if chained.is_null() { evaluator::default() } else { chained }
}

/// Whether it is the frame that the other hook was given, which calls us with it.
#[inline]
pub(super) fn has_passed_on(frame: *mut Frame) -> bool {
    PASSED_ON.load(Ordering::Relaxed) == frame
}

/// Has evaluate what comes after our hook.
///
/// # Safety
/// Python has called the hook with these, with the GIL.
#[inline]
pub(super) unsafe fn go_on_38<const OVER: bool>(frame: *mut Frame, throw: c_int) -> *mut Object {
    // SAFETY: as the caller promises, and the evaluators have the type that 3.8 has.
    let evaluate = |next| unsafe { transmute::<Address, Evaluator38>(next)(frame, throw) };
    if OVER { pass_on(frame, evaluate) } else { evaluate(evaluator::default()) }
}

/// As [`go_on_38`], from 3.9 on.
///
/// # Safety
/// As there.
#[inline]
pub(super) unsafe fn go_on_39<const OVER: bool>(
    thread: *mut ThreadState,
    frame: *mut Frame,
    throw: c_int,
) -> *mut Object {
    // SAFETY: as the caller promises, and the evaluators have the type that versions from 3.9 on have.
    let evaluate = |next| unsafe { transmute::<Address, Evaluator39>(next)(thread, frame, throw) };
    if OVER { pass_on(frame, evaluate) } else { evaluate(evaluator::default()) }
}

/// Has the hook evaluate that was there before ours. Should it come back to ours with the frame that it was
/// given, it was put before ours in the meantime, and they would call each other without end: then the
/// default evaluator goes on.
#[inline]
fn pass_on(frame: *mut Frame, evaluate: impl FnOnce(Address) -> *mut Object) -> *mut Object {
    let chained = CHAINED.load(Ordering::Relaxed);
    if chained.is_null() || has_passed_on(frame) {
        return evaluate(evaluator::default());
    }
    PASSED_ON.store(frame, Ordering::Relaxed);
    let result = evaluate(chained);
    PASSED_ON.store(ptr::null_mut(), Ordering::Relaxed);
    slot::look_after();
    result
}
