//! `sys.monitoring` in interpreters other than the main one.
//!
//! Each has its own tools, events and callbacks, and only a thread that runs in it can register them. So we
//! set a hook there, which such a thread calls with its next call of a Python function. The hook removes
//! itself, starts or stops the reports of its interpreter, and lets the function run. The wanted state is one
//! for all interpreters, and may have changed by then.
//!
//! Not in builds without a GIL: there threads read the hook twice, and another thread may remove it in
//! between (`_PyEval_EvalFrame`, Include/internal/pycore_ceval.h).

use core::{
    ffi::c_int,
    mem::transmute,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use speed_bump_abi::control_block::{Failure, notice};

use super::{DEFINITION, NAME, PY_START, TOOL_IDS, module::Monitoring, timed};
use crate::{
    block::Block,
    fault::Fault,
    frame_hook::{
        evaluator::{self, Address, Evaluator39, Frame},
        raised::Raised,
    },
    judge, locks,
    python::{
        api::{Api, MethodDefinition, ThreadState},
        gil::Python,
        kept::{Kept, KeptObject},
        object::{Object, Owned},
    },
};

/// Whether calls are to be reported.
static WANTED: AtomicBool = AtomicBool::new(false);
/// How often in a row an interpreter had no `sys.monitoring`: one that starts has none yet.
static WITHOUT: AtomicU32 = AtomicU32::new(0);
/// From this many times in a row on, we give up. Importing `site` makes some hundred calls.
const MAX_WITHOUT: u32 = 100_000;

/// Wants calls reported from here on. `false`: they cannot be.
pub(crate) fn begin(api: &'static Api, is_timed: bool) -> bool {
    // Counting assumes several locks, but stacks are freed only when no thread is known to use them.
    let can_be = hook(api).is_some() && (!is_timed || locks::expect_several(api));
    WANTED.store(can_be, Ordering::SeqCst);
    can_be
}

/// Wants calls no longer reported.
pub(crate) fn end() {
    WANTED.store(false, Ordering::SeqCst);
}

/// The hook that brings an interpreter to the wanted state. `None`: it cannot be used.
pub(crate) fn hook(api: &Api) -> Option<Address> {
    let can_be_used = !api.version.free_threaded && !evaluator::default().is_null();
    can_be_used.then_some(on_next_call as Evaluator39 as Address)
}

/// # Safety
/// Python calls it, with the GIL of its interpreter, in place of its evaluator.
unsafe extern "C" fn on_next_call(thread: *mut ThreadState, frame: *mut Frame, throw: c_int) -> *mut Object {
    if let Some(api) = Api::found() {
        // SAFETY: as the caller promises.
        see_to_interpreter(unsafe { Python::assume(api) });
    }
    // SAFETY: as the caller promises, and evaluators have this type from 3.9 on.
    unsafe { transmute::<Address, Evaluator39>(evaluator::default())(thread, frame, throw) }
}

/// Brings the running interpreter to the wanted state, and removes the hook from it.
#[cold]
#[inline(never)]
fn see_to_interpreter(python: Python<'_>) {
    // SAFETY: the GIL is held, so an interpreter runs, and is alive until this returns.
    let place = unsafe { NonNull::new((python.api.interpreter)()).and_then(|here| evaluator::place(here)) };
    let Some(place) = place else { return };
    let hook = on_next_call as Evaluator39 as Address;
    // We remove the hook first: a thread that changes the wanted state from here on sets the hook again.
    if place.compare_exchange(hook, ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst).is_err() {
        // Another tool came in between, and calls the hook that was there before: with each call, and for
        // ever.
        return not_covered();
    }
    let _raised = Raised::set_aside(python);
    let done = match Monitoring::find(python) {
        Ok(monitoring) => {
            WITHOUT.store(0, Ordering::Relaxed);
            settle(&monitoring)
        }
        Err(_) if is_wanted() && WITHOUT.fetch_add(1, Ordering::Relaxed) < MAX_WITHOUT => {
            evaluator::replace_default(place, hook);
            return;
        }
        Err(fault) => Err(fault),
    };
    if done.is_err() {
        not_covered();
    }
}

/// Whether calls are to be reported. A forked child learns from the block that a session has ended.
fn is_wanted() -> bool {
    WANTED.load(Ordering::SeqCst) && Block::current().is_some_and(Block::has_session)
}

fn not_covered() {
    if let Some(block) = Block::current()
        && is_wanted()
    {
        block.notice(notice::SUBINTERPRETERS);
    }
}

/// Starts or stops the reports of calls in this interpreter.
fn settle(monitoring: &Monitoring<'_>) -> Result<(), Fault> {
    let python = monitoring.python;
    let nowhere = || Fault::new(Failure::Python, &["the interpreter keeps nothing for others"]);
    let kept = Kept::here(python).ok_or_else(nowhere)?;
    let tool_named =
        |name: NonNull<Object>| TOOL_IDS.into_iter().find(|id| monitoring.is_named(*id, name.as_ptr()));
    if !is_wanted() {
        if let Some(tool) = kept.find(KeptObject::ToolName).and_then(tool_named) {
            monitoring.give_back(tool);
        }
        python.clear();
        return Ok(());
    }
    if !judge::prepare_here(python) {
        return Err(Fault::new(Failure::Python, &["the place in code objects (co_extra) is taken"]));
    }
    // SAFETY: the GIL is held.
    let make_name = || unsafe { Owned::from_new(python, (python.api.string)(NAME.as_ptr())) };
    let name =
        kept.find_or_make(KeptObject::ToolName, make_name).ok_or_else(|| python.fault(&["a name: "]))?;
    let tool = match tool_named(name) {
        Some(tool) => tool,
        None => monitoring.take_id(name.as_ptr(), u32::MAX)?,
    };
    let reported = report(monitoring, &kept, tool);
    if reported.is_err() {
        monitoring.give_back(tool);
    }
    reported
}

fn report(monitoring: &Monitoring<'_>, kept: &Kept<'_>, tool: c_int) -> Result<(), Fault> {
    let python = monitoring.python;
    let callback = |which, definition: &'static MethodDefinition| {
        let made = kept.find_or_make(which, || callback(python, definition));
        made.ok_or_else(|| python.fault(&["a callback: "]))
    };
    monitoring.register(tool, PY_START, callback(KeptObject::OnStart, &DEFINITION)?.as_ptr())?;
    let more = timed::register(monitoring, tool, |listener| {
        callback(listener.which, &listener.definition).map(NonNull::as_ptr)
    })?;
    // Code that answered DISABLE before must report again. This also affects other tools of this interpreter:
    // we do not know who had the ids here.
    monitoring.restart()?;
    monitoring.listen(tool, PY_START | more)
}

/// A callback with a bound object before its arguments: not the main interpreter's.
fn callback<'gil>(python: Python<'gil>, definition: &'static MethodDefinition) -> Option<Owned<'gil>> {
    // SAFETY: the GIL is held; the definition lives for ever, and so does `None` (immortal since 3.12).
    unsafe {
        let none = python.api.none.as_ptr();
        Owned::from_new(python, (python.api.native_function)(definition, none, ptr::null_mut()))
    }
}
