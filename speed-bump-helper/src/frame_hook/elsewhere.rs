//! The hook in interpreters other than the main one. Up to 3.11 they all share one GIL.

use core::{
    ffi::c_void,
    sync::atomic::{AtomicPtr, Ordering},
};

use speed_bump_abi::control_block::notice;

use super::{
    chain,
    evaluator::{self, Address},
    is_ours, ours, subscript,
};
use crate::{
    block::Block,
    judge,
    python::{
        api::{Api, Interpreter, ThreadState},
        gil::Python,
    },
};

/// The hook for other interpreters. `None` if our hook in the main interpreter passes frames on to another
/// tool's hook.
pub(crate) fn hook(api: &Api) -> Option<Address> {
    (!chain::is_there()).then(|| ours::<false>(api))
}

/// Sets the hook at this place, unless another tool's hook is there. Returns whether ours is set.
pub(crate) fn install(api: &Api, place: &AtomicPtr<c_void>, hook: Address) -> bool {
    let before = place.load(Ordering::Acquire);
    let is_there = before == hook
        || is_ours(api, before)
            && place.compare_exchange(before, hook, Ordering::AcqRel, Ordering::Acquire).is_ok();
    is_there || evaluator::replace_default(place, hook)
}

/// Removes the hook from this place. Needs the GIL.
pub(crate) fn uninstall(python: Python<'_>, place: &AtomicPtr<c_void>) {
    if is_ours(python.api, place.load(Ordering::Acquire)) {
        place.store(evaluator::stored_default(python), Ordering::Release);
    }
}

/// The interpreter of a thread state.
///
/// # Safety
/// A living thread state.
pub(super) unsafe fn interpreter_of(python: Python<'_>, thread: *mut ThreadState) -> *mut Interpreter {
    // SAFETY: as the caller promises.
    python.api.thread_interpreter.map_or_else(|| evaluator::main(python), |of| unsafe { of(thread) })
}

/// Whether the running interpreter can store verdicts. If not, removes the hook there.
pub(super) fn is_ready(python: Python<'_>, block: Block) -> bool {
    if running(python) == evaluator::main(python) {
        return true;
    }
    if judge::prepare_here(python) {
        subscript::give_versions_here(python, block);
        return true;
    }
    block.notice(notice::SUBINTERPRETERS);
    take_out_here(python);
    false
}

/// Removes the hook from the running interpreter, unless that is the main one.
pub(super) fn take_out_here(python: Python<'_>) {
    let interpreter = running(python);
    if interpreter == evaluator::main(python) {
        return;
    }
    // SAFETY: the running interpreter is alive, and there is one GIL.
    unsafe {
        if is_ours(python.api, evaluator::current_of(python, interpreter)) {
            evaluator::set_of(python, interpreter, evaluator::default());
        }
    }
}

fn running(python: Python<'_>) -> *mut Interpreter {
    // SAFETY: the GIL is held, so a thread runs.
    unsafe { (python.api.interpreter)() }
}
