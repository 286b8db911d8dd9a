//! Reports calls by `sys.monitoring`, from 3.12 on.
//!
//! A native callback for `PY_START`, enabled globally. For code that is not selected it returns `DISABLE`, so
//! that code costs nothing from then on. A forked child inherits all of it, but not the helper's thread:
//! there the callback itself reads the block.

mod calling;
pub(crate) mod elsewhere;
mod module;
mod timed;

use core::{
    ffi::c_int,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering},
};

use speed_bump_abi::control_block::notice;

use self::{
    calling::{by_caller, caller},
    module::Monitoring,
};
use crate::{
    block::Block,
    cold::ReportedBy,
    delay,
    fault::Fault,
    frame_hook::evaluator,
    judge::{self, Judge, Verdict},
    life,
    locks::Lock,
    python::{
        api::{Api, MethodDefinition},
        code::Code,
        gil::Python,
        object::{Object, Owned},
    },
    stub::{self, Ticks},
    subinterpreters, times,
};

/// The tool's name in `sys.monitoring.get_tool`.
const NAME: &core::ffi::CStr = c"speed-bump";
/// The tool ids in our order of preference: first those without a fixed purpose, then those of an optimiser,
/// a coverage tool, a debugger and a profiler.
const TOOL_IDS: [c_int; 6] = [3, 4, 5, 1, 0, 2];
/// The tool ids without a fixed purpose. We take another one only if these are in use.
const NOBODYS: [c_int; 2] = [3, 4];
/// `sys.monitoring.events.PY_START` (Include/cpython/monitoring.h).
const PY_START: c_int = 1;
/// `METH_FASTCALL` (Include/methodobject.h).
const METH_FASTCALL: c_int = 0x80;
const NO_TOOL: c_int = -1;

static TOOL: AtomicI32 = AtomicI32::new(NO_TOOL);
/// The name object that our tool was registered with; its identity shows that the tool is ours.
static TOOL_NAME: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());
/// The ids that were ours since all events were last restarted, a bit each: places in code may have answered
/// `DISABLE` to them. Initially all: other tools and other versions of the helper may have had them, and
/// Python keeps such answers as long as the code does not run.
static USED: AtomicU32 = AtomicU32::new(u32::MAX);
static CALLBACK: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());
static DISABLE: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());
/// Whether a selected function of the main interpreter was called since the last check: then the tool id is
/// still ours.
static CALLED: AtomicBool = AtomicBool::new(false);

static DEFINITION: MethodDefinition = MethodDefinition {
    name: NAME.as_ptr(),
    function: on_start,
    flags: METH_FASTCALL,
    documentation: ptr::null(),
};

/// Starts to report calls. A forked child keeps the tool that it inherited.
///
/// # Errors
/// [`Failure::NoToolId`]; [`Failure::Python`] with the exception.
pub(crate) fn install(python: Python<'_>) -> Result<(), Fault> {
    let monitoring = Monitoring::find(python)?;
    prepare(&monitoring)?;
    // For other interpreters; they are not covered if it cannot be used.
    if evaluator::default().is_null() {
        let _ = evaluator::prepare(python);
    }
    judge::read_in_place(python);
    delay::begin(ReportedBy::Monitoring);
    let tool = match TOOL.load(Ordering::Relaxed) {
        ours if monitoring.is_named(ours, TOOL_NAME.load(Ordering::Relaxed)) => ours,
        _ => monitoring.take_id(TOOL_NAME.load(Ordering::Relaxed), USED.load(Ordering::Relaxed))?,
    };
    let installed = report(&monitoring, tool);
    measure_round_trip(python);
    installed
}

/// Makes all code report calls to a tool id, including code that answered `DISABLE` to it in an earlier
/// session. An id that was not ours since events were restarted needs nothing for that. Otherwise we restart
/// all events, which also reports to other tools what they have disabled. If another tool had the id in
/// between and gave it back, code that it disabled and that has not run since does not report: that cannot be
/// detected.
fn report(monitoring: &Monitoring<'_>, tool: c_int) -> Result<(), Fault> {
    let python = monitoring.python;
    let callback = CALLBACK.load(Ordering::Relaxed);
    let reported = monitoring.register(tool, PY_START, callback).and_then(|()| {
        let more = timed::register(monitoring, tool, |listener| listener.of_main(python))?;
        if !is_fresh(tool, USED.load(Ordering::Relaxed)) || !monitoring.has_others(tool) {
            monitoring.restart()?;
            USED.store(0, Ordering::Relaxed);
        }
        monitoring.listen(tool, PY_START | more)
    });
    if reported.is_err() {
        monitoring.give_back(tool);
        TOOL.store(NO_TOOL, Ordering::Relaxed);
    } else {
        TOOL.store(tool, Ordering::Relaxed);
        USED.fetch_or(1 << tool, Ordering::Relaxed);
    }
    reported
}

/// Whether no place in code can have answered `DISABLE` to this id, given the ids that were ours.
fn is_fresh(tool: c_int, used: u32) -> bool {
    NOBODYS.contains(&tool) && used & 1 << tool == 0
}

/// Measures the round trip from Python to the callback, with a function that is never called.
fn measure_round_trip(python: Python<'_>) {
    let api = python.api;
    let (Some(block), Some(make), Some(call)) = (Block::current(), api.empty_code, api.vectorcall) else {
        return;
    };
    // SAFETY: the arguments are C strings; the GIL is held.
    let code = unsafe { Owned::from_new(python, make(c"".as_ptr(), c"".as_ptr(), 1)) };
    if let Some(code) = code {
        let arguments = [code.as_ptr(), api.none.as_ptr()];
        delay::measure_round_trip(block, || {
            // SAFETY: living objects, as many as given; the GIL is held.
            let answer = unsafe {
                let callback = CALLBACK.load(Ordering::Relaxed);
                Owned::from_new(python, call(callback, arguments.as_ptr(), arguments.len(), ptr::null_mut()))
            };
            drop(answer);
            timed::rehearse(python, block, &arguments);
        });
    }
    python.clear();
}

/// Makes every function report again, after the selector changed, and starts or stops timing calls, as the
/// loader wants it. If there are other tools, we change the tool id, so that they get no events.
///
/// # Errors
/// [`Failure::Python`]; [`Failure::Unsupported`]: there is no memory.
pub(crate) fn rejudge(python: Python<'_>) -> Result<(), Fault> {
    let monitoring = Monitoring::find(python)?;
    let old = TOOL.load(Ordering::Relaxed);
    let name = TOOL_NAME.load(Ordering::Relaxed);
    let is_retimed = times::follow()?;
    if old != NO_TOOL && monitoring.is_named(old, name) && monitoring.has_others(old) {
        let used = USED.load(Ordering::Relaxed);
        let fresh = TOOL_IDS.into_iter().filter(|id| is_fresh(*id, used));
        if let Ok(tool) = monitoring.take_one(name, fresh) {
            // First stop the old one, so that no call is reported twice.
            monitoring.give_back(old);
            report(&monitoring, tool)?;
            if is_retimed {
                measure_round_trip(python);
            }
            return Ok(());
        }
    }
    ask_again(&monitoring, is_retimed)
}

/// Makes every function report again, by the same tool id. `is_retimed`: the set of events has changed.
fn ask_again(monitoring: &Monitoring<'_>, is_retimed: bool) -> Result<(), Fault> {
    let tool = TOOL.load(Ordering::Relaxed);
    if !is_retimed || !monitoring.is_named(tool, TOOL_NAME.load(Ordering::Relaxed)) {
        return restart(monitoring);
    }
    report(monitoring, tool)?;
    measure_round_trip(monitoring.python);
    Ok(())
}

fn restart(monitoring: &Monitoring<'_>) -> Result<(), Fault> {
    monitoring.restart()?;
    let tool = TOOL.load(Ordering::Relaxed);
    USED.store(if tool == NO_TOOL { 0 } else { 1 << tool }, Ordering::Relaxed);
    Ok(())
}

/// Checks whether calls are still reported. Returns bits of [`notice`].
pub(crate) fn check(python: Python<'_>) -> u32 {
    let Ok(monitoring) = Monitoring::find(python) else { return notice::TOOL_ID_LOST };
    let tool = TOOL.load(Ordering::Relaxed);
    if monitoring.is_named(tool, TOOL_NAME.load(Ordering::Relaxed)) && monitoring.listens(tool, PY_START) {
        0
    } else {
        notice::TOOL_ID_LOST
    }
}

/// Whether [`check`] is needed, which takes the GIL: no call has shown that all is well.
pub(crate) fn check_is_due() -> bool {
    !CALLED.swap(false, Ordering::Relaxed)
}

/// Undoes [`install`]. Returns what was lost meanwhile, as bits of [`notice`].
pub(crate) fn uninstall(python: Python<'_>) -> u32 {
    let tool = TOOL.swap(NO_TOOL, Ordering::Relaxed);
    if tool == NO_TOOL {
        return 0;
    }
    let Ok(monitoring) = Monitoring::find(python) else { return notice::TOOL_ID_LOST };
    if !monitoring.is_named(tool, TOOL_NAME.load(Ordering::Relaxed)) {
        return notice::TOOL_ID_LOST;
    }
    monitoring.give_back(tool);
    0
}

/// Makes the Python objects that we need, once per process.
fn prepare(monitoring: &Monitoring<'_>) -> Result<(), Fault> {
    let python = monitoring.python;
    // SAFETY: the GIL is held; the definition lives for ever.
    let make_callback = || unsafe {
        let callback = (python.api.native_function)(&raw const DEFINITION, ptr::null_mut(), ptr::null_mut());
        Owned::from_new(python, callback)
    };
    // SAFETY: the GIL is held.
    let make_name = || unsafe { Owned::from_new(python, (python.api.string)(NAME.as_ptr())) };
    let find_disable = || monitoring.module.attribute(c"DISABLE");
    let once = |place: &AtomicPtr<Object>, make: &dyn Fn() -> Option<_>| {
        if place.load(Ordering::Acquire).is_null() {
            let made: Owned<'_> = make().ok_or_else(|| python.fault(&["sys.monitoring: "]))?;
            place.store(made.keep(), Ordering::Release);
        }
        Ok(())
    };
    once(&DISABLE, &find_disable)?;
    once(&TOOL_NAME, &make_name)?;
    once(&CALLBACK, &make_callback)
}

/// The callback for a function that starts: `on_start(code, offset)`.
///
/// # Safety
/// Python calls it, with the GIL, and with a code object as the first argument.
unsafe extern "C" fn on_start(
    bound: *mut Object,
    arguments: *const *mut Object,
    count: isize,
) -> *mut Object {
    let began = stub::now_if_likely();
    let Some(api) = Api::found() else { return ptr::null_mut() };
    let lock = lock_of(bound);
    // SAFETY: as the caller promises.
    match unsafe { selected(api, arguments, count) } {
        // SAFETY: the same.
        None if unsafe { is_loader(api, arguments, count) } => api.none.as_ptr(),
        None => disable(api),
        Some((block, code, selected)) => {
            if lock == Lock::Main && !CALLED.load(Ordering::Relaxed) {
                CALLED.store(true, Ordering::Relaxed);
            }
            // SAFETY: Python holds the GIL while it calls.
            let python = unsafe { Python::assume(api) };
            match selected {
                Selected::Function(number) => {
                    stub::enter_timed(block, number, code as usize, began, lock, || caller(python, block));
                }
                Selected::ByCaller(first) => start_by_caller(python, block, first, code, began, lock),
            }
            // Immortal since 3.12.
            api.none.as_ptr()
        }
    }
}

/// A function starts whose targets are for some callers alone.
#[inline(never)]
fn start_by_caller(
    python: Python<'_>,
    block: Block,
    first: u32,
    code: *mut Object,
    began: Option<Ticks>,
    lock: Lock,
) {
    // Finding the caller is part of the delay.
    let began = began.unwrap_or_else(stub::now);
    match by_caller(python, block, first) {
        Some(number) => {
            stub::enter_timed(block, number, code as usize, Some(began), lock, || caller(python, block));
        }
        None => times::pass_over(block, code as usize, began),
    }
}

/// A function that targets select.
#[derive(Clone, Copy)]
enum Selected {
    /// Its number.
    Function(u32),
    /// The first of its numbers: its targets are for some callers alone.
    ByCaller(u32),
}

/// Whether the function is not selected, but its calls must be visible.
///
/// # Safety
/// As [`selected`].
#[cold]
unsafe fn is_loader(api: &'static Api, arguments: *const *mut Object, count: isize) -> bool {
    // SAFETY: as the caller promises.
    let code = unsafe {
        let first = (count > 0).then(|| NonNull::new(*arguments)).flatten();
        first.and_then(|first| Code::from_object(Python::assume(api), first))
    };
    code.zip(Judge::current()).is_some_and(|(code, judge)| judge.known(code) == Some(Verdict::Loader))
}

/// Which lock is held, by the callback's bound object: null for the main interpreter.
#[inline]
fn lock_of(bound: *mut Object) -> Lock {
    if bound.is_null() { Lock::Main } else { Lock::Another }
}

/// The block, the code object and the function, if a session runs and the function is selected.
///
/// # Safety
/// The arguments of a callback, which Python calls with the GIL.
#[inline(always)]
unsafe fn selected(
    api: &'static Api,
    arguments: *const *mut Object,
    count: isize,
) -> Option<(Block, *mut Object, Selected)> {
    // SAFETY: Python holds the GIL while it calls.
    let python = unsafe { Python::assume(api) };
    if count < 1 {
        return None;
    }
    // SAFETY: there is a first argument, and it lives during the call. Any code may call this with any
    // object.
    let code = unsafe { Code::from_object(python, NonNull::new(*arguments)?) }?;
    let block = Block::current()?;
    if !block.has_session() {
        return None;
    }
    let judge = judge(block)?;
    let verdict = judge.known(code).unwrap_or_else(|| judge.judge(block, code, None));
    match verdict {
        Verdict::Unselected => None,
        Verdict::Loader => {
            subinterpreters::listen(python);
            None
        }
        Verdict::Function(number) => Some((block, code.as_ptr(), Selected::Function(number))),
        Verdict::ByCaller(first) => Some((block, code.as_ptr(), Selected::ByCaller(first))),
    }
}

/// The judge of the block's generation. In a forked child, which has no helper thread, this puts the selector
/// to use.
#[inline]
fn judge(block: Block) -> Option<&'static Judge> {
    let judge = Judge::current()?;
    let generation = block.head().generation.load(Ordering::Relaxed);
    if judge.generation == generation || life::is_claimed() { Some(judge) } else { adopt(block, generation) }
}

#[cold]
fn adopt(block: Block, generation: u32) -> Option<&'static Judge> {
    let api = Api::found()?;
    // SAFETY: called by the callback, which Python calls with the GIL.
    let python = unsafe { Python::assume(api) };
    let adopted = Judge::adopt(block, generation).ok().flatten();
    // We keep the tool id, since a callback of this id is running.
    let again = || {
        let is_retimed = times::follow()?;
        Monitoring::find(python).and_then(|monitoring| ask_again(&monitoring, is_retimed))
    };
    if adopted.is_some() && again().is_err() {
        python.clear();
    }
    adopted.or_else(Judge::current)
}

#[cold]
fn disable(api: &Api) -> *mut Object {
    let answer = DISABLE.load(Ordering::Acquire);
    // SAFETY: a living object, and Python holds the GIL while it calls.
    unsafe { (api.increment)(answer) };
    answer
}
