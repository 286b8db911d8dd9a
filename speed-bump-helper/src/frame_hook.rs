//! Calls by a frame evaluation hook (PEP 523), from 3.8 to 3.11.
//!
//! Python asks the hook to evaluate each frame. It looks for the verdict on the frame's code, runs into the
//! stub if the frame begins, and has the evaluator go on that was there before. Without a hook 3.11 does not
//! even ask, but evaluates calls from Python to Python in one C function; so the hook is there only while it
//! is needed.
//!
//! Other tools set hooks as well. Where one stays, ours is a hook of its own that comes before it and has it
//! evaluate (`chain`). Where one comes and goes, ours waits for it to go, since whoever comes puts back what
//! it found, and calls it meanwhile (`slot`).
//!
//! Interpreters beside the main one get the same hook (`elsewhere`). A forked child inherits the hook without
//! the helper's thread: there the hook takes itself out when the session is over.

mod calling;
mod chain;
mod depth;
pub(crate) mod elsewhere;
pub(crate) mod evaluator;
pub(crate) mod first_sight;
mod frame;
pub(crate) mod raised;
pub(crate) mod slot;
mod stack;
mod subscript;
mod timed;

use core::{
    ffi::c_int,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
};

use speed_bump_abi::control_block::{ControlBlock, Failure};

use self::{
    calling::{Calling, key},
    evaluator::{Address, Evaluator38, Evaluator39, Frame},
    raised::Raised,
};
use crate::{
    block::Block,
    cold::Way,
    delay,
    fault::Fault,
    judge::{self, Judge, Verdict},
    life,
    locks::Lock,
    python::{
        api::{Api, ThreadState},
        code::Code,
        gil::{Gil, Python},
        object::Object,
    },
    stub::{self, Ticks},
    subinterpreters, times,
};

/// Whether the hook should be there.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Whether it is not there in the main interpreter for now, because a thread is deep in its stack.
static IN_THE_DEPTH: AtomicBool = AtomicBool::new(false);
/// Whether the session times calls.
static TIMED: AtomicBool = AtomicBool::new(false);
/// The head of the block, which lies at the same address in all sessions.
static HEAD: AtomicPtr<ControlBlock> = AtomicPtr::new(ptr::null_mut());
/// Where `co_extra` lies in a code object; 0: unknown, or there is no head.
static EXTRA: AtomicUsize = AtomicUsize::new(0);

/// Has calls reported. In a forked child that inherited the hook, it is kept.
///
/// # Errors
/// [`Failure::Unsupported`], [`Failure::NoPython`], [`Failure::Python`].
pub(crate) fn install(gil: &mut Gil, block: Block) -> Result<(), Fault> {
    slot::find(gil, block);
    let python = gil.python();
    prepare(python, block)?;
    subscript::give_versions(python)?;
    delay::begin(Way::Hook);
    measure_way(block);
    WANTED.store(true, Ordering::Release);
    TIMED.store(block.times().is_some(), Ordering::Release);
    slot::take(gil, block);
    Ok(())
}

/// Measures what a call takes of a function that there is not. Python itself takes next to nothing to get to
/// the hook.
fn measure_way(block: Block) {
    delay::measure_way(block, || {
        stub::enter(block, u32::MAX, stub::now_if_likely(), Lock::Main);
        times::rehearse(block);
    });
}

/// After the selector changed. Calls are timed from here on, or not any more, as the loader wants it.
///
/// # Errors
/// [`Failure::Python`]; [`Failure::Unsupported`]: there is no memory.
pub(crate) fn rejudge(python: Python<'_>) -> Result<(), Fault> {
    if times::follow()?
        && let Some(block) = Block::current()
    {
        TIMED.store(block.times().is_some(), Ordering::Release);
        slot::renew(python);
        measure_way(block);
    }
    first_sight::prepare(python)
}

/// After everything was judged anew.
///
/// # Errors
/// [`Failure::Python`].
pub(crate) fn surveyed(python: Python<'_>) -> Result<(), Fault> {
    subscript::give_versions(python)
}

/// Undoes [`install`]; what the user should hear of, as bits of [`notice`].
pub(crate) fn uninstall(python: Python<'_>) -> u32 {
    WANTED.store(false, Ordering::Release);
    subscript::take_back(python);
    slot::give_back(python)
}

fn prepare(python: Python<'_>, block: Block) -> Result<(), Fault> {
    // SAFETY: the GIL is held; the result is compared and nothing else.
    if !unsafe { (python.api.sys_object)(c"gettotalrefcount".as_ptr()) }.is_null() {
        return Err(Fault::new(Failure::Unsupported, &["this is a debug build of CPython (Py_DEBUG)"]));
    }
    frame::check(python)?;
    calling::prepare(python);
    evaluator::prepare(python)?;
    first_sight::prepare(python)?;
    subscript::prepare(python)?;
    if !stack::prepare() {
        return Err(Fault::new(Failure::Unsupported, &["the C library does not say where stacks end"]));
    }
    HEAD.store(ptr::from_ref(block.head()).cast_mut(), Ordering::Release);
    if EXTRA.load(Ordering::Relaxed) == 0 {
        EXTRA.store(judge::find_extra(python).unwrap_or(0), Ordering::Release);
    }
    Ok(())
}

/// The hook for this version and session: one that has CPython evaluate, or one that has the other tool's
/// hook do so (`OVER`).
fn ours<const OVER: bool>(api: &Api) -> Address {
    let version = api.version.minor();
    if TIMED.load(Ordering::Acquire) { timed::hook::<OVER>(version) } else { hook::<OVER>(version) }
}

/// Whether it is the hook of this or another session.
fn is_ours(api: &Api, evaluator: Address) -> bool {
    let version = api.version.minor();
    [hook::<false>(version), timed::hook::<false>(version)].contains(&evaluator) || is_over(api, evaluator)
}

/// Whether it is one of those that have the other tool's hook evaluate.
fn is_over(api: &Api, evaluator: Address) -> bool {
    let version = api.version.minor();
    [hook::<true>(version), timed::hook::<true>(version)].contains(&evaluator)
}

/// The hook for a version where calls are not timed.
fn hook<const OVER: bool>(version: (u8, u8)) -> Address {
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
    unsafe {
        if throw == 0 && frame::begins::<{ frame::LAST_38 }>(frame) {
            begin::<false>(Calling::OLD, frame, frame::code(frame));
        }
        chain::go_on_38::<OVER>(frame, throw)
    }
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
    unsafe {
        if throw == 0 && frame::begins::<LAST>(frame) {
            begin::<false>(Calling::OLD, frame, frame::code(frame));
        }
        chain::go_on_39::<OVER>(thread, frame, throw)
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
    // SAFETY: as the caller promises, and the evaluator has the type that versions from 3.9 on have.
    unsafe {
        if throw == 0 {
            begin::<false>(Calling::of_311(thread, key), frame, frame::code(frame));
        }
        if !chain::has_next::<OVER>() && !stack::is_ample(key) {
            return depth::evaluate(thread, frame, throw);
        }
        chain::go_on_39::<OVER>(thread, frame, throw)
    }
}

/// Runs into the stub, if the frame begins (only 3.11 does not know it yet) and is of a selected function.
/// With `TIMED`, times it from here on. Whether it was one.
///
/// # Safety
/// A frame and its code, about to be evaluated, with the GIL.
#[inline]
unsafe fn begin<const TIMED: bool>(calling: Calling, frame: *mut Frame, code: *mut Object) -> bool {
    // SAFETY: as the caller promises.
    unsafe { !is_unselected(code) && begin_selected::<TIMED>(calling, frame, code) }
}

/// Whether the code is known at once to be of no selected function.
///
/// # Safety
/// A living code object; the GIL is held.
#[inline]
unsafe fn is_unselected(code: *mut Object) -> bool {
    let (extra, head) = (EXTRA.load(Ordering::Relaxed), HEAD.load(Ordering::Relaxed));
    // SAFETY: as the caller promises; the head of a block is never unmapped.
    unsafe { extra != 0 && judge::is_unselected(code, extra, (*head).generation.load(Ordering::Relaxed)) }
}

/// # Safety
/// As [`begin`].
#[inline(never)]
unsafe fn begin_selected<const TIMED: bool>(calling: Calling, frame: *mut Frame, code: *mut Object) -> bool {
    let began = stub::now_if_likely();
    if chain::has_passed_on(frame) {
        // The hook that it was passed on to has come back with it: it is counted already.
        return false;
    }
    let (Some(api), Some(block), Some(judge)) = (Api::found(), Block::current(), Judge::current()) else {
        return false;
    };
    // SAFETY: as the caller promises.
    let code = unsafe { Code::assume(Python::assume(api), NonNull::new_unchecked(code)) };
    // SAFETY: as the caller promises.
    if calling.is_311() && !unsafe { frame::begins_311(frame, code.as_ptr(), code.flags()) } {
        return false;
    }
    let is_current = judge.generation == block.head().generation.load(Ordering::Relaxed);
    match judge.known(code) {
        Some(Verdict::Function(number)) if is_current && block.has_session() => {
            if calling.is_311() {
                // SAFETY: as the caller promises; a frame of 3.11.
                unsafe { subscript::entered(frame, code) };
            }
            // SAFETY: as the caller promises.
            unsafe { enter::<TIMED>(block, number, calling, frame, code.python(), began) };
            true
        }
        Some(Verdict::Unselected) if is_current => false,
        // SAFETY: as the caller promises.
        _ => unsafe { begin_unusual::<TIMED>(calling, frame, code.as_ptr(), began) },
    }
}

/// # Safety
/// As [`begin`].
#[inline]
unsafe fn enter<const TIMED: bool>(
    block: Block,
    number: u32,
    calling: Calling,
    frame: *mut Frame,
    python: Python<'_>,
    began: Option<Ticks>,
) {
    if TIMED {
        // SAFETY: as the caller promises.
        let caller = || unsafe { calling.caller(python, block, frame) };
        stub::enter_timed(block, number, frame as usize, began, Lock::Main, caller);
    } else {
        stub::enter(block, number, began, Lock::Main);
    }
}

/// What is rare: no verdict, no session, a new selector, or a module that begins.
///
/// # Safety
/// As [`begin`].
#[cold]
#[inline(never)]
unsafe fn begin_unusual<const TIMED: bool>(
    calling: Calling,
    frame: *mut Frame,
    code: *mut Object,
    began: Option<Ticks>,
) -> bool {
    let (Some(api), Some(block)) = (Api::found(), Block::current()) else { return false };
    // SAFETY: as the caller promises.
    let python = unsafe { Python::assume(api) };
    let _raised = Raised::set_aside(python);
    if !block.has_session() {
        if !life::is_claimed() {
            uninstall(python);
        }
        if !WANTED.load(Ordering::Acquire) {
            elsewhere::take_out_here(python);
        }
        return false;
    }
    if !elsewhere::is_ready(python, block) {
        return false;
    }
    let Some(judge) = judge_at_work(block, python) else { return false };
    // SAFETY: as the caller promises.
    let code = unsafe { Code::assume(python, NonNull::new_unchecked(code)) };
    let verdict = judge.known(code).or_else(|| first_sight::judge(block, judge, code, frame, calling.key()));
    let number = match verdict {
        Some(Verdict::Function(number)) => number,
        Some(Verdict::Loader) => {
            subinterpreters::listen(python);
            return false;
        }
        Some(Verdict::Unselected) | None => return false,
    };
    // SAFETY: as the caller promises.
    unsafe { enter::<TIMED>(block, number, calling, frame, python, began) };
    true
}

/// The judge of the block's generation; in a forked child, where no thread sees to it, it is put to work
/// here.
fn judge_at_work(block: Block, python: Python<'_>) -> Option<&'static Judge> {
    let judge = Judge::current()?;
    let generation = block.head().generation.load(Ordering::Relaxed);
    if judge.generation == generation || life::is_claimed() {
        return Some(judge);
    }
    let adopted = Judge::adopt(block, generation).ok().flatten();
    if adopted.is_some() && rejudge(python).is_err() {
        python.clear();
    }
    adopted.or_else(Judge::current)
}
