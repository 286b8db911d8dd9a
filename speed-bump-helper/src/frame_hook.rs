//! Reports calls by a frame evaluation hook (PEP 523), on 3.8 to 3.11.
//!
//! Python calls the hook to evaluate each frame. The hook looks up the verdict on the frame's code, calls the
//! stub if the frame starts, and then calls the evaluator that was there before. Without a hook, 3.11
//! evaluates calls from Python to Python in one C function, which takes less time and stack. So the hook is
//! set only while it is needed.
//!
//! Other tools set hooks as well. If the hook of another tool stays, ours is set on top of it and calls it to
//! evaluate (`chain`). If another tool sets and removes its hook again and again, we wait until its hook is
//! gone, and then set ours. When that tool next sets its hook, it saves ours, calls it, and puts it back in
//! the end (`slot`).
//!
//! Interpreters other than the main one get the same hook (`elsewhere`). A forked child inherits the hook,
//! but not the helper's thread. So in a child the hook removes itself when the session is over.

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
    cold::ReportedBy,
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

/// Whether the hook should be set.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Whether the hook is removed from the main interpreter for now, because a thread is deep in its stack.
static IN_THE_DEPTH: AtomicBool = AtomicBool::new(false);
/// Whether the session times calls.
static TIMED: AtomicBool = AtomicBool::new(false);
/// The head of the block, at the same address in all sessions.
static HEAD: AtomicPtr<ControlBlock> = AtomicPtr::new(ptr::null_mut());
/// Offset of `co_extra` in a code object; 0: unknown, or [`HEAD`] is not set yet.
static EXTRA: AtomicUsize = AtomicUsize::new(0);

/// Starts to report calls. Not for a forked child, which keeps the hook that it inherited.
///
/// # Errors
/// [`Failure::Unsupported`], [`Failure::NoPython`], [`Failure::Python`].
pub(crate) fn install(gil: &mut Gil, block: Block) -> Result<(), Fault> {
    slot::find(gil, block);
    let python = gil.python();
    prepare(python, block)?;
    subscript::give_versions(python)?;
    delay::begin(ReportedBy::Hook);
    measure_round_trip(block);
    WANTED.store(true, Ordering::Release);
    TIMED.store(block.times().is_some(), Ordering::Release);
    slot::take(gil, block);
    Ok(())
}

/// Measures how long the hook takes to report a call, by reporting calls of a function that does not exist.
/// Python itself takes almost no time to call the hook.
fn measure_round_trip(block: Block) {
    delay::measure_round_trip(block, || {
        stub::enter(block, u32::MAX, stub::now_if_likely(), Lock::Main);
        times::rehearse(block);
    });
}

/// Applies a changed selector, and starts or stops timing calls, as the loader wants it.
///
/// # Errors
/// [`Failure::Python`]; [`Failure::Unsupported`]: there is no memory.
pub(crate) fn rejudge(python: Python<'_>) -> Result<(), Fault> {
    if times::follow()?
        && let Some(block) = Block::current()
    {
        TIMED.store(block.times().is_some(), Ordering::Release);
        slot::renew(python);
        measure_round_trip(block);
    }
    first_sight::prepare(python)
}

/// Must be called after all code was judged again.
///
/// # Errors
/// [`Failure::Python`].
pub(crate) fn surveyed(python: Python<'_>) -> Result<(), Fault> {
    subscript::give_versions(python)
}

/// Undoes [`install`]. Returns bits of [`notice`] for the user.
pub(crate) fn uninstall(python: Python<'_>) -> u32 {
    WANTED.store(false, Ordering::Release);
    subscript::take_back(python);
    slot::give_back(python)
}

fn prepare(python: Python<'_>, block: Block) -> Result<(), Fault> {
    // SAFETY: the GIL is held; the result is only compared.
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

/// The hook for this version and session: one that calls CPython's evaluator, or (`OVER`) one that calls the
/// other tool's hook.
fn ours<const OVER: bool>(api: &Api) -> Address {
    let version = api.version.minor();
    if TIMED.load(Ordering::Acquire) { timed::hook::<OVER>(version) } else { hook::<OVER>(version) }
}

/// Whether it is a hook of ours, of this or another session.
fn is_ours(api: &Api, evaluator: Address) -> bool {
    let version = api.version.minor();
    [hook::<false>(version), timed::hook::<false>(version)].contains(&evaluator) || is_over(api, evaluator)
}

/// Whether it is one of our hooks that call the other tool's hook.
fn is_over(api: &Api, evaluator: Address) -> bool {
    let version = api.version.minor();
    [hook::<true>(version), timed::hook::<true>(version)].contains(&evaluator)
}

/// The hook for a version, if calls are not timed.
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

/// Calls the stub if the frame belongs to a selected function, and, with `TIMED`, starts to time the call.
/// Returns whether it called the stub. On 3.11 this also checks that the frame starts; for other versions the
/// caller has checked that.
///
/// # Safety
/// A frame and its code, about to be evaluated, with the GIL.
#[inline]
unsafe fn begin<const TIMED: bool>(calling: Calling, frame: *mut Frame, code: *mut Object) -> bool {
    // SAFETY: as the caller promises.
    unsafe { !is_unselected(code) && begin_selected::<TIMED>(calling, frame, code) }
}

/// Whether the code is already known to belong to no selected function.
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
        // We passed this frame on to the other tool's hook, and that hook calls ours with the same frame. The
        // call is counted already.
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
        Some(Verdict::ByCaller(first)) if is_current && block.has_session() => {
            if calling.is_311() {
                // SAFETY: as the caller promises; a frame of 3.11.
                unsafe { subscript::entered(frame, code) };
            }
            // SAFETY: as the caller promises.
            unsafe { enter_by_caller::<TIMED>(block, first, calling, frame, code.python(), began) }
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

/// Like [`enter`], for a function whose targets are for some callers alone: such a function has a number for
/// each target. `first` is the first of these numbers. Returns whether one of the targets is for this call.
///
/// # Safety
/// As [`begin`].
#[inline(never)]
unsafe fn enter_by_caller<const TIMED: bool>(
    block: Block,
    first: u32,
    calling: Calling,
    frame: *mut Frame,
    python: Python<'_>,
    began: Option<Ticks>,
) -> bool {
    // Finding the caller is part of the delay.
    let began = began.unwrap_or_else(stub::now);
    // SAFETY: as the caller promises.
    let Some(number) = (unsafe { calling.branch(python, block, frame, first) }) else { return false };
    // SAFETY: as the caller promises.
    unsafe { enter::<TIMED>(block, number, calling, frame, python, Some(began)) };
    true
}

/// The rare cases: no verdict, no session, a new selector, or a module that starts.
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
    match verdict {
        Some(Verdict::Function(number)) => {
            // SAFETY: as the caller promises.
            unsafe { enter::<TIMED>(block, number, calling, frame, python, began) };
            true
        }
        Some(Verdict::ByCaller(first)) => {
            // SAFETY: as the caller promises.
            unsafe { enter_by_caller::<TIMED>(block, first, calling, frame, python, began) }
        }
        Some(Verdict::Loader) => {
            subinterpreters::listen(python);
            false
        }
        Some(Verdict::Unselected) | None => false,
    }
}

/// The judge of the block's generation. In a forked child, which has no helper thread, this applies the new
/// selector.
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
