//! The hook of another tool that ours came after: it is asked to evaluate frames, and is put back in the end.

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use super::evaluator::{self, Address, Evaluator38, Evaluator39, Frame};
use crate::python::{api::ThreadState, gil::Python, object::Object};

/// That hook. Null: there is none.
static CHAINED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The frame that was given to it last, while it is at it.
static PASSED_ON: AtomicPtr<Frame> = AtomicPtr::new(ptr::null_mut());

/// Remembers the hook; the evaluator that passes frames on to it.
pub(super) fn to(python: Python<'_>, hook: Address) -> Address {
    CHAINED.store(hook, Ordering::Release);
    match python.api.version.minor() {
        (3, 8) => through_chain_38 as Evaluator38 as Address,
        _ => through_chain_39 as Evaluator39 as Address,
    }
}

/// There is none any more.
pub(super) fn forget() {
    CHAINED.store(ptr::null_mut(), Ordering::Relaxed);
}

/// What evaluated frames before ours came.
pub(super) fn before() -> Address {
    let chained = CHAINED.load(Ordering::Relaxed);
    if chained.is_null() { evaluator::default() } else { chained }
}

/// # Safety
/// Python calls it, with the GIL, in place of its evaluator.
unsafe extern "C" fn through_chain_38(frame: *mut Frame, throw: c_int) -> *mut Object {
    // SAFETY: as the caller promises, and the evaluators have the type that 3.8 has.
    unsafe { pass_on(frame, |next| transmute::<Address, Evaluator38>(next)(frame, throw)) }
}

/// # Safety
/// Python calls it, with the GIL, in place of its evaluator.
unsafe extern "C" fn through_chain_39(
    thread: *mut ThreadState,
    frame: *mut Frame,
    throw: c_int,
) -> *mut Object {
    // SAFETY: as the caller promises, and the evaluators have the type that versions from 3.9 on have.
    unsafe { pass_on(frame, |next| transmute::<Address, Evaluator39>(next)(thread, frame, throw)) }
}

/// Has the hook evaluate that was there before ours. Should it come back to ours with the frame that it was
/// given, it was put before ours in the meantime, and they would call each other without end: then the
/// default evaluator goes on.
#[inline]
fn pass_on(frame: *mut Frame, evaluate: impl FnOnce(Address) -> *mut Object) -> *mut Object {
    let chained = CHAINED.load(Ordering::Relaxed);
    if chained.is_null() || PASSED_ON.load(Ordering::Relaxed) == frame {
        return evaluate(evaluator::default());
    }
    PASSED_ON.store(frame, Ordering::Relaxed);
    let result = evaluate(chained);
    PASSED_ON.store(ptr::null_mut(), Ordering::Relaxed);
    result
}
