//! Another tool's hook that ours was set on top of: our hook calls it to evaluate frames, and we put it back
//! in the end. Only one of our hooks calls it; our other hook calls CPython's evaluator.
//!
//! The other tool may set its hook once more, on top of ours. Then it saves our hook, and puts ours back when
//! it removes its own. PyTorch sets its hook for each thread that enters code that PyTorch compiled, and puts
//! back, for all these threads, the hook that it saved last. So once we see the tool's hook on top of ours,
//! we neither call it nor put it back. Our hook then calls CPython's evaluator.

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

/// The other tool's hook. Null: there is none.
static CHAINED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The frames that were last passed on to the other tool's hook and are still being evaluated, each with the
/// thread that passed it on: room for as many threads as usually run Python. Only a thread that holds the GIL
/// reads and writes this.
static PASSED_ON: [PassedOn; 64] = [const { PassedOn::none() }; 64];
/// Whether a frame was ever passed on.
static ANY_PASSED_ON: AtomicBool = AtomicBool::new(false);
/// Thread states are at least this many bytes apart, as far as matters here.
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

    fn for_thread(thread: *mut ThreadState) -> &'static Self {
        let number = thread.addr() / APART;
        &PASSED_ON[(number ^ number >> 6 ^ number >> 12) % PASSED_ON.len()]
    }

    /// The frame that the thread has passed on last; null: none.
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

/// The running thread.
fn thread() -> *mut ThreadState {
    // SAFETY: only hooks call this, and they have the GIL, so a thread runs.
    Api::found().and_then(|api| api.thread_state).map_or(ptr::null_mut(), |state| unsafe { state() })
}

/// Remembers the hook that ours is set on top of.
pub(super) fn to(hook: Address) {
    CHAINED.store(hook, Ordering::Release);
}

/// Forgets the hook that ours is set on top of.
pub(super) fn forget() {
    CHAINED.store(ptr::null_mut(), Ordering::Release);
}

/// Whether our hook is set on top of another tool's hook.
pub(super) fn is_there() -> bool {
    !CHAINED.load(Ordering::Acquire).is_null()
}

/// Whether our hook calls another tool's hook. If it does, calls would take as much of the stack without our
/// hook, because the other tool's hook would stay.
#[inline]
pub(super) fn has_next<const OVER: bool>() -> bool {
    OVER && is_there()
}

/// Whether our hook is set on top of this hook.
pub(super) fn is(hook: Address) -> bool {
    !hook.is_null() && CHAINED.load(Ordering::Acquire) == hook
}

/// The evaluator that was there before ours.
pub(super) fn before() -> Address {
    let chained = CHAINED.load(Ordering::Acquire);
    if chained.is_null() { evaluator::default() } else { chained }
}

/// Whether we have passed this frame on to the other tool's hook, which now calls our hook with the same
/// frame.
#[inline]
pub(super) fn has_passed_on(frame: *mut Frame) -> bool {
    ANY_PASSED_ON.load(Ordering::Relaxed) && has_passed_on_by(thread(), frame)
}

fn has_passed_on_by(thread: *mut ThreadState, frame: *mut Frame) -> bool {
    PassedOn::for_thread(thread).get(thread) == frame
}

/// Calls the evaluator that follows our hook.
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

/// Calls the hook that was there before ours. That hook calls ours with the same frame if the other tool has
/// set it on top of ours in the meantime. The two would call each other without end, so we call the default
/// evaluator then. Before the other hook calls ours, it may run Python code, whose frames we pass on as well.
/// So we remember the frame that we pass on, and afterwards restore the frame that was remembered before,
/// unless other threads or greenlets have used the entry in between.
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
    let passed_on = PassedOn::for_thread(thread);
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
