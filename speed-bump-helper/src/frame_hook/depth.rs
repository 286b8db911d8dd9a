//! Handles calls deep in a thread's C stack, on 3.11.

use core::{ffi::c_int, mem::transmute, ptr, sync::atomic::Ordering};

use speed_bump_abi::control_block::notice;

use super::{
    IN_THE_DEPTH, WANTED, chain, elsewhere,
    evaluator::{self, Address, Evaluator39, Frame},
    is_ours, is_over, ours,
};
use crate::{
    block::Block,
    python::{
        api::{Api, ThreadState},
        gil::Python,
        object::Object,
    },
};

/// On 3.11 each call takes some of the C stack while there is a hook, and none without. If little is left, we
/// remove the hook until the frame returns.
///
/// # Safety
/// Python calls a hook with these, with the GIL.
#[cold]
#[inline(never)]
pub(super) unsafe fn evaluate(thread: *mut ThreadState, frame: *mut Frame, throw: c_int) -> *mut Object {
    let default = evaluator::default();
    // SAFETY: the evaluator has the type that versions from 3.9 on have.
    let evaluate = unsafe { transmute::<Address, Evaluator39>(default) };
    let Some(api) = Api::found() else { return ptr::null_mut() };
    // SAFETY: as the caller promises.
    let python = unsafe { Python::assume(api) };
    // SAFETY: the thread state that Python gave the hook, and its interpreter, which is alive since this
    // thread runs in it.
    let interpreter = unsafe { elsewhere::interpreter_of(python, thread) };
    let ours = ours::<false>(python.api);
    // SAFETY: the same. Up to 3.11 there is one GIL for all.
    let current = unsafe { evaluator::current_of(python, interpreter) };
    if !is_ours(python.api, current) || is_over(python.api, current) && chain::is_there() {
        // Without our hook, another tool's hook would stay, and calls would take as much of the stack.
        // SAFETY: as the caller promises.
        return unsafe { evaluate(thread, frame, throw) };
    }
    if let Some(block) = Block::current()
        && block.has_session()
    {
        block.notice(notice::STACK_SHORT);
    }
    let is_main = interpreter == evaluator::main(python);
    if is_main {
        IN_THE_DEPTH.store(true, Ordering::SeqCst);
    }
    // SAFETY: as the caller promises, and as above: the interpreter is alive until the frame has returned.
    unsafe {
        evaluator::set_of(python, interpreter, default);
        let result = evaluate(thread, frame, throw);
        if WANTED.load(Ordering::Acquire) && evaluator::current_of(python, interpreter) == default {
            evaluator::set_of(python, interpreter, ours);
        }
        if is_main {
            // First we set the hook again, and then we clear this flag: a thread that sees neither hook nor
            // flag would think that our hook is lost. If the place is empty from here on, our hook counts as
            // missing.
            IN_THE_DEPTH.store(false, Ordering::SeqCst);
        }
        result
    }
}
