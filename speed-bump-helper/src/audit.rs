//! CPython's audit events (PEP 578), by a hook that receives those of all interpreters.
//!
//! We add it only to learn of events that nothing else reports: that Python starts in this process
//! ([`from_start`]), or that another interpreter starts ([`subinterpreters`]). It cannot be removed. From
//! then on Python creates the arguments of each event, which takes 15 to 30 ns (measured on 3.8 to 3.15), and
//! the hook returns.

use core::{
    ffi::{c_char, c_int, c_void},
    mem::transmute,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{from_start, host::Library, python::object::Object, stage::Stage, subinterpreters};

/// `Py_AuditHookFunction`.
type Hook = unsafe extern "C" fn(*const c_char, *mut Object, *mut c_void) -> c_int;

static IS_ADDED: AtomicBool = AtomicBool::new(false);

/// Adds the hook. `false`: Python could not add it, and an exception may be set. If another hook forbids it
/// (`sys.addaudithook` is an event itself), Python does not report that.
///
/// # Safety
/// Python is not initialised yet, or the GIL is held.
pub(crate) unsafe fn listen(library: Library) -> bool {
    if IS_ADDED.swap(true, Ordering::AcqRel) {
        return true;
    }
    let added = library.symbol(c"PySys_AddAuditHook").is_some_and(|add| {
        // SAFETY: the function has this signature in all versions (Include/cpython/sysmodule.h), and may be
        // called before the interpreter is initialised.
        let add = unsafe {
            transmute::<*mut c_void, unsafe extern "C" fn(Hook, *mut c_void) -> c_int>(add.as_ptr())
        };
        // SAFETY: as the caller promises.
        unsafe { add(on_event, ptr::null_mut()) == 0 }
    });
    if !added {
        IS_ADDED.store(false, Ordering::Release);
    }
    added
}

/// Whether the hook was added.
pub(crate) fn is_listened_to() -> bool {
    IS_ADDED.load(Ordering::Acquire)
}

/// # Safety
/// Python calls it. Events before the initialisation may come without a thread state.
unsafe extern "C" fn on_event(event: *const c_char, arguments: *mut Object, _: *mut c_void) -> c_int {
    match Stage::now() {
        Stage::Idle => subinterpreters::on_event(),
        // SAFETY: Python's own arguments.
        stage => unsafe { from_start::on_event(stage, event, arguments) },
    }
    0
}
