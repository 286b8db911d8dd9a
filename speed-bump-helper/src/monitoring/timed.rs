//! The further events for timing calls: how calls end, and how generators are suspended and resume.
//!
//! All of them are enabled globally. Code that is not selected answers `DISABLE`, as for the start of a
//! function, so each of its places reports once. Local events would avoid even that; but up to 3.13 they stay
//! with a code object after the tool is gone, and there is no list of code objects to remove them from. Two
//! events cannot be disabled before 3.15: an exception in a function that is not selected costs a callback
//! that finds no call in progress.

use core::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use super::{METH_FASTCALL, NAME, Selected, by_caller, caller, disable, module::Monitoring, selected};
use crate::{
    block::Block,
    fault::Fault,
    python::{
        api::{Api, FastCall, MethodDefinition},
        gil::Python,
        kept::KeptObject,
        object::{Object, Owned},
    },
    stub,
    times::{self, Entering, Kind},
};

/// A callback and its events, by their names in `sys.monitoring.events`: their numbers differ between
/// versions.
pub(super) struct Listener {
    /// The key of the callback in the dictionary of another interpreter.
    pub(super) which: KeptObject,
    events: &'static [&'static core::ffi::CStr],
    pub(super) definition: MethodDefinition,
    /// The main interpreter's callback object.
    callback: AtomicPtr<Object>,
}

impl Listener {
    const fn new(which: KeptObject, events: &'static [&'static core::ffi::CStr], function: FastCall) -> Self {
        let (name, documentation) = (NAME.as_ptr(), ptr::null());
        let definition = MethodDefinition { name, function, flags: METH_FASTCALL, documentation };
        Self { which, events, definition, callback: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The main interpreter's callback, made once per process.
    pub(super) fn of_main(&'static self, python: Python<'_>) -> Result<*mut Object, Fault> {
        if self.callback.load(Ordering::Acquire).is_null() {
            // SAFETY: the GIL is held; the definition lives for ever.
            let made = unsafe {
                let definition = &raw const self.definition;
                let made = (python.api.native_function)(definition, ptr::null_mut(), ptr::null_mut());
                Owned::from_new(python, made)
            };
            let made = made.ok_or_else(|| python.fault(&["sys.monitoring: "]))?;
            self.callback.store(made.keep(), Ordering::Release);
        }
        Ok(self.callback.load(Ordering::Acquire))
    }
}

static LISTENERS: [Listener; 4] = [
    Listener::new(KeptObject::OnResume, &[c"PY_RESUME"], on_resume),
    Listener::new(KeptObject::OnEnd, &[c"PY_RETURN", c"PY_YIELD"], on_end),
    Listener::new(KeptObject::OnThrow, &[c"PY_THROW"], on_throw),
    Listener::new(KeptObject::OnUnwind, &[c"PY_UNWIND"], on_unwind),
];

/// Registers the callbacks, if the session times calls. Returns the events to enable.
pub(super) fn register(
    monitoring: &Monitoring<'_>,
    tool: c_int,
    callback: impl Fn(&'static Listener) -> Result<*mut Object, Fault>,
) -> Result<c_int, Fault> {
    if Block::current().and_then(Block::times).is_none() {
        return Ok(0);
    }
    let python = monitoring.python;
    let mut events = 0;
    for listener in &LISTENERS {
        let callback = callback(listener)?;
        for name in listener.events {
            let event = number(monitoring, name).ok_or_else(|| python.fault(&["sys.monitoring.events: "]))?;
            monitoring.register(tool, event, callback)?;
            events |= event;
        }
    }
    Ok(events)
}

/// Unregisters the callbacks.
pub(super) fn forget(monitoring: &Monitoring<'_>, tool: c_int) {
    let none = monitoring.python.api.none.as_ptr();
    for listener in LISTENERS.iter().filter(|listener| !listener.callback.load(Ordering::Acquire).is_null()) {
        for name in listener.events {
            if let Some(event) = number(monitoring, name) {
                let _ = monitoring.register(tool, event, none);
            }
        }
    }
    monitoring.python.clear();
}

/// Runs through the timing of a call once, if the session times calls: with a function that is not selected,
/// and with callers as well.
pub(super) fn rehearse(python: Python<'_>, block: Block, arguments: &[*mut Object; 2]) {
    let (Some(call), [_, on_end, ..]) = (python.api.vectorcall, &LISTENERS) else { return };
    let callback = on_end.callback.load(Ordering::Relaxed);
    if block.times().is_none() || callback.is_null() {
        return;
    }
    // SAFETY: living objects, as many as is said; the GIL is held.
    drop(unsafe {
        let answer = call(callback, arguments.as_ptr(), arguments.len(), ptr::null_mut());
        Owned::from_new(python, answer)
    });
    times::rehearse(block);
}

/// An event's number. If there is none, an exception is set.
fn number(monitoring: &Monitoring<'_>, name: &core::ffi::CStr) -> Option<c_int> {
    let number = monitoring.module.attribute(c"events")?.attribute(name)?.integer()?;
    c_int::try_from(number).ok()
}

/// The callback for a generator or coroutine that resumes: `on_resume(code, offset)`.
///
/// # Safety
/// Python calls it, with the GIL, and with a code object as the first argument.
unsafe extern "C" fn on_resume(_: *mut Object, arguments: *const *mut Object, count: isize) -> *mut Object {
    let Some(api) = Api::found() else { return ptr::null_mut() };
    // SAFETY: as the caller promises.
    if unsafe { resume(api, arguments, count) } { api.none.as_ptr() } else { disable(api) }
}

/// The callback for a generator or coroutine into which an exception is thrown: `on_throw(code, offset,
/// exception)`.
///
/// # Safety
/// As [`on_resume`].
unsafe extern "C" fn on_throw(_: *mut Object, arguments: *const *mut Object, count: isize) -> *mut Object {
    let Some(api) = Api::found() else { return ptr::null_mut() };
    // SAFETY: as the caller promises.
    unsafe { resume(api, arguments, count) };
    api.none.as_ptr()
}

/// Begins to time a generator or coroutine that resumes. Returns whether it belongs to a selected function.
///
/// # Safety
/// As [`on_resume`].
#[inline]
unsafe fn resume(api: &'static Api, arguments: *const *mut Object, count: isize) -> bool {
    let began = stub::now();
    // SAFETY: as the caller promises.
    let Some((block, code, selected)) = (unsafe { selected(api, arguments, count) }) else {
        return false;
    };
    if block.times().is_none() {
        // In a child that was forked while calls were timed: this place is not asked again.
        return false;
    }
    let entering = Entering { identity: code as usize, kind: Kind::Resumes, began };
    // SAFETY: Python holds the GIL while it calls.
    let python = unsafe { Python::assume(api) };
    let number = match selected {
        Selected::Function(number) => Some(number),
        Selected::ByCaller(first) => by_caller(python, block, first),
    };
    // A generator's time counts for the function that resumes it.
    let Some(number) = number else {
        times::pass_over(block, code as usize, began);
        return true;
    };
    if let Some(timed) = times::enter(block, number, entering, || caller(python, block)) {
        timed.begins_now();
    }
    true
}

/// The callback for a function that returns or is suspended: `on_end(code, offset, value)`.
///
/// # Safety
/// As [`on_resume`].
unsafe extern "C" fn on_end(_: *mut Object, arguments: *const *mut Object, count: isize) -> *mut Object {
    let Some(api) = Api::found() else { return ptr::null_mut() };
    // SAFETY: as the caller promises.
    if unsafe { end(api, arguments, count) } { api.none.as_ptr() } else { disable(api) }
}

/// The callback for a function that an exception leaves: `on_unwind(code, offset, exception)`.
///
/// # Safety
/// As [`on_resume`].
unsafe extern "C" fn on_unwind(_: *mut Object, arguments: *const *mut Object, count: isize) -> *mut Object {
    let Some(api) = Api::found() else { return ptr::null_mut() };
    // SAFETY: as the caller promises.
    unsafe { end(api, arguments, count) };
    api.none.as_ptr()
}

/// Ends the timing of a call. Returns whether the call is one of a selected function.
///
/// # Safety
/// As [`on_resume`].
#[inline]
unsafe fn end(api: &'static Api, arguments: *const *mut Object, count: isize) -> bool {
    let ended = stub::now();
    let Some(block) = Block::current().filter(|block| count >= 1 && block.times().is_some()) else {
        return false;
    };
    // SAFETY: there is a first argument, and only its address is used.
    let code = unsafe { *arguments } as usize;
    if times::leave(block, code, ended) {
        return true;
    }
    // SAFETY: as the caller promises.
    let is_selected = unsafe { selected(api, arguments, count) }.is_some();
    if is_selected {
        times::leave_out_of_turn(block, code, ended);
    }
    is_selected
}
