//! The hook of another tool that ours came after: it is asked to evaluate frames, and is put back in the end.
//! Only one of our hooks does that; the other one has CPython evaluate.
//!
//! A tool that was there before ours may come once more, find ours, and put ours back when it goes: PyTorch
//! does so for each thread that enters what it compiled, and what it finds last is what it puts back for all
//! of them. From then on its hook must neither be called nor put back. So once it is seen on top of ours,
//! ours has CPython evaluate: the tool has ours to put back, and nothing else.

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use super::{
    evaluator::{self, Address, Evaluator38, Evaluator39, Frame},
    slot,
};
use crate::python::{
    api::{Api, ThreadState},
    object::Object,
};

/// That hook. Null: there is none.
static CHAINED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The frames that were given to it last, while it is at it, each by the thread that gave it: as many threads
/// as usually run Python. Only who holds the GIL reads and writes this.
static PASSED_ON: [PassedOn; 64] = [const { PassedOn::none() }; 64];
/// Whether any ever was.
static ANY_PASSED_ON: AtomicBool = AtomicBool::new(false);
/// Bytes by which thread states lie apart at least, as far as it matters here.
const APART: usize = 64;

/// A frame that a thread has passed on.
struct PassedOn {
    thread: AtomicPtr<ThreadState>,
    frame: AtomicPtr<Frame>,
}

impl PassedOn {
    const fn none() -> Self {
        Self { thread: AtomicPtr::new(ptr::null_mut()), frame: AtomicPtr::new(ptr::null_mut()) }
    }

    fn of(thread: *mut ThreadState) -> &'static Self {
        let number = thread.addr() / APART;
        &PASSED_ON[(number ^ number >> 6 ^ number >> 12) % PASSED_ON.len()]
    }

    /// What the thread has passed on last; null: nothing.
    fn get(&self, thread: *mut ThreadState) -> *mut Frame {
        if self.thread.load(Ordering::Relaxed) == thread {
            self.frame.load(Ordering::Relaxed)
        } else {
            ptr::null_mut()
        }
    }

    fn set(&self, thread: *mut ThreadState, frame: *mut Frame) {
        self.thread.store(thread, Ordering::Relaxed);
        self.frame.store(frame, Ordering::Relaxed);
    }
}

/// The thread that runs.
fn thread() -> *mut ThreadState {
    // SAFETY: only hooks ask, and they have the GIL, so a thread runs.
    Api::found().and_then(|api| api.thread_state).map_or(ptr::null_mut(), |state| unsafe { state() })
}

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

/// Whether our hook has another tool's evaluate: then calls take as much of the stack without ours.
#[inline]
pub(super) fn has_next<const OVER: bool>() -> bool {
    OVER && is_there()
}

/// Whether it is this one.
pub(super) fn is(hook: Address) -> bool {
    !hook.is_null() && CHAINED.load(Ordering::Acquire) == hook
}

/// What evaluated frames before ours came.
pub(super) fn before() -> Address {
    let chained = CHAINED.load(Ordering::Acquire);
    if chained.is_null() { evaluator::default() } else { chained }
}

/// Whether it is the frame that the other hook was given, which calls us with it.
#[inline]
pub(super) fn has_passed_on(frame: *mut Frame) -> bool {
    ANY_PASSED_ON.load(Ordering::Relaxed) && has_passed_on_by(thread(), frame)
}

fn has_passed_on_by(thread: *mut ThreadState, frame: *mut Frame) -> bool {
    PassedOn::of(thread).get(thread) == frame
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
/// default evaluator goes on. It may run Python before it comes back, whose frames are passed on as well: so
/// the one before is remembered again when a frame was evaluated, unless other threads or greenlets were at
/// it in between.
#[inline]
fn pass_on(frame: *mut Frame, evaluate: impl FnOnce(Address) -> *mut Object) -> *mut Object {
    let chained = CHAINED.load(Ordering::Relaxed);
    if chained.is_null() {
        return evaluate(evaluator::default());
    }
    let thread = thread();
    if has_passed_on_by(thread, frame) {
        return evaluate(evaluator::default());
    }
    ANY_PASSED_ON.store(true, Ordering::Relaxed);
    let passed_on = PassedOn::of(thread);
    let outer = passed_on.get(thread);
    passed_on.set(thread, frame);
    let result = evaluate(chained);
    if passed_on.get(thread) == frame {
        passed_on.set(thread, outer);
    } else if passed_on.thread.load(Ordering::Relaxed) == thread {
        passed_on.set(thread, ptr::null_mut());
    }
    slot::look_after();
    result
}
