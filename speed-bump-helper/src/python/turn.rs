//! Decides when the helper may ask for the GIL without harm.
//!
//! A thread that waits for the GIL through CPython sets a flag. The thread with the GIL gives it away when it
//! sees the flag, and then waits until another thread has taken it. Some programs keep the GIL while they
//! sleep, as uWSGI does without `--enable-threads`, and fork in C. A child that is forked while the helper
//! waits inherits the flag but not the helper: it gives the GIL away and waits for ever. So the helper checks
//! first, and asks only if the GIL is free, is passed on, or is held by a thread that computes.
//!
//! Otherwise it adds a call to Python's queue (`Py_AddPendingCall`). The main thread makes the call as soon
//! as it executes Python code, and so offers the GIL to the helper. A child that is forked meanwhile inherits
//! the queue, and starts the session for itself with its first Python code.

mod breaker;
mod holder;
mod load;

use core::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use speed_bump_abi::control_block::{HelperCommand, notice};

use self::{holder::Holder, load::Load};
use super::api::Api;
use crate::{block::Block, life, session, sys};

/// How often we check the GIL, in ms; CPython's own threads check as often.
const LOOK_EVERY_MS: u32 = 5;
/// Checks before we add a call to the queue: nearly always the GIL is free by then.
const LOOKS_ALONE: u32 = 2;
/// How long the main thread offers the GIL, in checks of 1 ms. A helper that comes later must ask for it.
const OFFERED_MS: u32 = 100;

/// How long the main thread waits for the helper's work, in checks of 5 ms: longer than the work takes.
const TAKEN_LOOKS: u32 = 2_000;

/// No thread waits for the main thread.
const NOBODY: u32 = 0;
/// The helper's thread waits for the main thread.
const WANTED: u32 = 1;
/// The main thread has given the GIL away, and waits until the helper has taken it.
const OFFERED: u32 = 2;
/// The helper has the GIL, and the main thread waits until the helper is done: otherwise it would ask for the
/// GIL as CPython does.
const TAKEN: u32 = 3;

static STAGE: AtomicU32 = AtomicU32::new(NOBODY);
/// Whether the call is in Python's queue.
static IS_QUEUED: AtomicBool = AtomicBool::new(false);

/// The result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The caller no longer wants the GIL.
    Unwanted,
    /// The caller may ask for the GIL, or it is offered.
    Comes,
}

/// The progress of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    /// How long it has lasted, in ms.
    pub(crate) ms: u32,
    /// Whether the process computes.
    pub(crate) is_busy: bool,
}

/// Waits until the GIL may be asked for. Calls `go_on` in between.
pub(super) fn wait(api: &'static Api, mut go_on: impl FnMut(Waited) -> bool) -> Turn {
    let mut first = None;
    let mut load = Load::begin();
    let mut looks = 0_u32;
    let turn = loop {
        if STAGE.load(Ordering::Acquire) == OFFERED {
            break Turn::Comes;
        }
        let holder = match holder::holder(api) {
            Some(Holder::Thread(holder)) => holder,
            // If the holder cannot be found, there is no better way.
            Some(Holder::Free) | None => break Turn::Comes,
        };
        if *first.get_or_insert(holder) != holder || load.others_compute() {
            break Turn::Comes;
        }
        if !go_on(Waited { ms: looks.saturating_mul(LOOK_EVERY_MS), is_busy: load.is_busy() }) {
            break Turn::Unwanted;
        }
        if looks >= LOOKS_ALONE && !queue(api) {
            break Turn::Comes;
        }
        let stage = if looks < LOOKS_ALONE { NOBODY } else { WANTED };
        sys::wait(&STAGE, stage, if looks < LOOKS_ALONE { 1 } else { LOOK_EVERY_MS });
        looks = looks.saturating_add(1);
    };
    if turn == Turn::Unwanted {
        over();
    }
    turn
}

/// The helper has the GIL. Returns whether the main thread waits until it is done.
pub(super) fn taken() -> bool {
    let is_offered = STAGE.compare_exchange(OFFERED, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !is_offered {
        STAGE.store(NOBODY, Ordering::Release);
    }
    is_offered
}

/// The helper no longer needs the GIL: the main thread goes on.
pub(super) fn over() {
    if STAGE.swap(NOBODY, Ordering::AcqRel) >= OFFERED {
        sys::wake(&STAGE);
    }
}

/// Makes the main thread offer the GIL when it executes Python code. `false`: Python's queue is full.
fn queue(api: &Api) -> bool {
    let _ = STAGE.compare_exchange(NOBODY, WANTED, Ordering::AcqRel, Ordering::Acquire);
    // A call that was not needed before is still in the queue.
    if IS_QUEUED.swap(true, Ordering::AcqRel) {
        return true;
    }
    // SAFETY: the function needs no GIL, and `offer` is never unloaded.
    let is_queued = unsafe { (api.add_pending_call)(offer, ptr::null_mut()) } == 0;
    if is_queued {
        breaker::pull(api);
    } else {
        IS_QUEUED.store(false, Ordering::Release);
    }
    is_queued
}

/// Python's main thread calls it, with the GIL.
unsafe extern "C" fn offer(_: *mut c_void) -> c_int {
    IS_QUEUED.store(false, Ordering::Release);
    let Some(api) = Api::found() else { return 0 };
    if !life::is_claimed() {
        if STAGE.swap(NOBODY, Ordering::AcqRel) == WANTED {
            begin_in_child(api);
        }
        return 0;
    }
    if STAGE.compare_exchange(WANTED, OFFERED, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return 0;
    }
    // SAFETY: Python called this with the GIL, and gets it back with the same thread state.
    unsafe {
        let state = (api.save_thread)();
        sys::wake(&STAGE);
        for _ in 0..OFFERED_MS {
            if STAGE.load(Ordering::Acquire) != OFFERED {
                break;
            }
            sys::wait(&STAGE, OFFERED, 1);
        }
        let _ = STAGE.compare_exchange(OFFERED, NOBODY, Ordering::AcqRel, Ordering::Acquire);
        for _ in 0..TAKEN_LOOKS {
            if STAGE.load(Ordering::Acquire) != TAKEN {
                break;
            }
            sys::wait(&STAGE, TAKEN, LOOK_EVERY_MS);
        }
        (api.restore_thread)(state);
    }
    0
}

/// A child that was forked while the helper waited has no helper thread: it starts the session by itself.
#[cold]
fn begin_in_child(api: &'static Api) {
    let is_wanted = |block: &Block| block.has_session() && block.command() != HelperCommand::Leave;
    let Some(block) = Block::current().filter(is_wanted) else { return };
    // The session takes the thread's own state, which belongs to the main interpreter. If the thread holds
    // the GIL under another state (a sub-interpreter of 3.8), the session would wait for a GIL that this
    // thread has.
    // SAFETY: the GIL is held.
    let is_own = api.thread_state.is_some_and(|current| unsafe { current() == (api.gil_state)() });
    let begun = if is_own { session::begin(block, api).is_ok_and(|begun| begun.is_some()) } else { false };
    if !begun && is_wanted(&block) {
        block.notice(notice::FORKED_UNCOVERED);
    }
}
