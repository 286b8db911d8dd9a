//! Reports calls in sub-interpreters too.
//!
//! The mechanism that reports calls belongs to an interpreter, and only a thread that runs in it can start
//! it. The helper's thread never runs there: an interpreter must not be ended while another thread is in it,
//! and may be ended at any time. So the helper's thread sets a hook as the interpreter's frame evaluator (PEP
//! 523), under the lock of the list of interpreters, and the interpreter's own thread calls it with its next
//! call of a Python function. Up to 3.11 that hook reports calls; from 3.12 on, it sets up `sys.monitoring`
//! there, and removes itself.
//!
//! An interpreter that starts during a session raises audit events before it runs any code of the program. At
//! the first event that finds the list's lock free, we set the hook. We listen to these events only if
//! interpreters are likely to start: some exist, or the module is loaded by which Python code starts them.
//! Otherwise the helper's thread checks for new ones now and then.

use core::{
    ffi::CStr,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use speed_bump_abi::control_block::notice;

use crate::{
    audit,
    block::Block,
    coverage::Coverage,
    frame_hook::evaluator,
    python::{
        api::Api,
        gil::Python,
        interpreters::{self, Interpreters, Locked},
    },
    sys,
};

/// The number of the first interpreter after the main one.
const FIRST: i64 = 1;
/// The modules by which Python code starts interpreters: up to 3.12, and from 3.13 on.
const MODULES: [&CStr; 2] = [c"_xxsubinterpreters", c"_interpreters"];
/// How often we try the list's lock at the end of a session, and the pause in between. Other threads hold it
/// for microseconds.
const TRIES: u32 = 100;
const BETWEEN_TRIES_NS: u32 = 100_000;

/// Whether the session covers sub-interpreters.
static COVERED: AtomicBool = AtomicBool::new(false);
/// All interpreters with a smaller number have their hook. We write this with the list's lock held, and read
/// it without.
static SEEN: AtomicI64 = AtomicI64::new(FIRST);
/// Whether all interpreters must get their hook again. Cleared with the list's lock held.
static ALL: AtomicBool = AtomicBool::new(false);
/// Whether we have reported that sub-interpreters are not covered: then we stop checking for new ones.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Covers all sub-interpreters, again those that are covered already: the selector may have changed.
pub(crate) fn cover_all(python: Python<'_>, block: Block, coverage: Coverage) {
    let covered = coverage.begin_elsewhere(python.api, block.times().is_some());
    COVERED.store(covered, Ordering::Release);
    ALL.store(true, Ordering::Release);
    GIVEN_UP.store(false, Ordering::Relaxed);
    listen(python);
    cover(python, block, coverage);
}

/// Covers the sub-interpreters that are not covered. If the list is in use, they stay due.
pub(crate) fn cover(python: Python<'_>, block: Block, coverage: Coverage) {
    let api = python.api;
    match Interpreters::find(api).filter(|_| COVERED.load(Ordering::Acquire)) {
        Some(list) => put_hooks(list, api, block, coverage),
        None if there_are_some(api) => {
            GIVEN_UP.store(true, Ordering::Relaxed);
            block.notice(notice::SUBINTERPRETERS);
        }
        None => {}
    }
}

/// Whether some sub-interpreters are not covered, as far as we can find out without a lock.
pub(crate) fn are_due(api: &Api) -> bool {
    let are_due = || match interpreters::next_number() {
        Some(next) => next > first_due(),
        None => there_are_some(api),
    };
    !GIVEN_UP.load(Ordering::Relaxed) && are_due()
}

/// Stops covering sub-interpreters.
pub(crate) fn uncover(python: Python<'_>, coverage: Coverage) {
    COVERED.store(false, Ordering::Release);
    coverage.end_elsewhere();
    let Some(list) = Interpreters::find(python.api).filter(|list| list.next_number() > FIRST) else { return };
    let Some(locked) = wait_for(list) else { return };
    locked.each_other(|interpreter, _| {
        // SAFETY: it is in the list, and stays there as long as the lock is held.
        if let Some(place) = unsafe { evaluator::place(interpreter) } {
            coverage.undo_elsewhere(python, place);
        }
    });
}

/// Listens to the audit events of new interpreters, if some are likely to start.
pub(crate) fn listen(python: Python<'_>) {
    if audit::is_listened_to() || !COVERED.load(Ordering::Acquire) {
        return;
    }
    let are_some = interpreters::next_number().is_some_and(|next| next > FIRST);
    if are_some || has_module(python) {
        // SAFETY: the GIL is held.
        unsafe { audit::listen(python.api.library) };
        python.clear();
    }
}

/// Handles an audit event, on any thread: covers interpreters that have started.
#[inline]
pub(crate) fn on_event() {
    if COVERED.load(Ordering::Relaxed)
        && let Some(next) = interpreters::next_number()
        && next > first_due()
    {
        cover_new();
    }
}

#[cold]
fn cover_new() {
    if let (Some(api), Some(block)) = (Api::found(), Block::current())
        && block.has_session()
        && let Some(list) = Interpreters::find(api)
    {
        put_hooks(list, api, block, Coverage::for_version(api));
    }
}

/// Interpreters with this number or a greater one are due: they have yet to get their hook.
#[inline]
fn first_due() -> i64 {
    if ALL.load(Ordering::Relaxed) { FIRST } else { SEEN.load(Ordering::Relaxed) }
}

/// Sets hooks in the interpreters that are due. If the list is in use, does nothing.
fn put_hooks(list: Interpreters, api: &'static Api, block: Block, coverage: Coverage) {
    let hook = coverage.hook_elsewhere(api);
    let Some(locked) = list.try_lock() else { return };
    let first = first_due();
    ALL.store(false, Ordering::Release);
    let mut all = true;
    locked.each_other(|interpreter, number| {
        if number >= first {
            // SAFETY: it is in the list, and stays there as long as the lock is held.
            let place = unsafe { evaluator::place(interpreter) };
            all &= place.zip(hook).is_some_and(|(place, hook)| coverage.put_elsewhere(api, place, hook));
        }
    });
    SEEN.store(list.next_number(), Ordering::Release);
    drop(locked);
    if !all {
        block.notice(notice::SUBINTERPRETERS);
    }
}

/// Whether there are sub-interpreters.
pub(crate) fn there_are_some(api: &Api) -> bool {
    // SAFETY: both return a pointer that is only compared.
    let (newest, main) = unsafe { ((api.interpreter_head)(), (api.interpreter_main)()) };
    !newest.is_null() && newest != main
}

/// Whether Python code has loaded the module that starts interpreters.
fn has_module(python: Python<'_>) -> bool {
    // SAFETY: the GIL is held; the names are C strings, and the dictionary is not used after this.
    unsafe {
        let modules = (python.api.sys_object)(c"modules".as_ptr());
        !modules.is_null()
            && MODULES.iter().any(|name| !(python.api.dict_item)(modules, name.as_ptr()).is_null())
    }
}

/// The list with its lock, which other threads hold for a moment. `None`: they held it for longer.
fn wait_for(list: Interpreters) -> Option<Locked> {
    (0..TRIES).find_map(|_| {
        let locked = list.try_lock();
        if locked.is_none() {
            sys::sleep(BETWEEN_TRIES_NS);
        }
        locked
    })
}
