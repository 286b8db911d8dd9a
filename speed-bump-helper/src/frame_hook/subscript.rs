//! `__getitem__` in the first releases of 3.11.
//!
//! In these releases, an `x[y]` that was specialised for a Python `__getitem__` evaluates this function
//! without checking for a hook (Python/ceval.c, BINARY_SUBSCR_GETITEM of 3.11.2; 3.11.7 checks). It does so
//! only while the function has a version that fits 16 bits. So during a session, selected functions of that
//! name get larger versions: Python would reach these numbers only after four thousand million functions.
//! Python only compares versions, to see whether a function is still the same. A function whose version is 0
//! gets the next number from Python.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering},
};

use super::evaluator::Frame;
use crate::{
    block::Block,
    fault::Fault,
    judge::{Judge, Verdict},
    python::{
        code::Code,
        gil::Python,
        kept::{Kept, KeptObject},
        object::{Object, Owned},
    },
    survey::each_function,
};

/// `func_version` in a function of 3.11 (Include/cpython/funcobject.h).
const VERSION: usize = 128;
/// `f_func` in a frame of 3.11 (Include/internal/pycore_frame.h).
const FUNCTION: usize = 0;
/// Versions from here on are ours.
const OURS: u32 = 1 << 31;

/// The interned name, which all such code objects have. Null before 3.11.
static NAME: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());
static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);
/// Whether some function has a version of ours.
static GIVEN: AtomicBool = AtomicBool::new(false);

/// Finds the name, once per process.
///
/// # Errors
/// [`speed_bump_abi::control_block::Failure::Python`].
pub(super) fn prepare(python: Python<'_>) -> Result<(), Fault> {
    if python.api.version.minor() != (3, 11) || !NAME.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    // SAFETY: the argument is a C string; the GIL is held.
    let name = unsafe { Owned::from_new(python, (python.api.interned)(c"__getitem__".as_ptr())) };
    NAME.store(name.ok_or_else(|| python.fault(&["a string: "]))?.keep(), Ordering::Release);
    Ok(())
}

/// Must be called before the frame of a selected function is evaluated.
///
/// # Safety
/// A frame of 3.11 and its code.
#[inline]
pub(super) unsafe fn entered(frame: *mut Frame, code: Code<'_>) {
    if code.is_named(NAME.load(Ordering::Relaxed)) {
        // SAFETY: as the caller promises.
        unsafe { give_version(frame.wrapping_byte_add(FUNCTION).cast::<*mut Object>().read()) };
    }
}

/// Gives versions to all selected functions that are loaded.
///
/// # Errors
/// [`speed_bump_abi::control_block::Failure::Python`].
pub(super) fn give_versions(python: Python<'_>) -> Result<(), Fault> {
    let (name, Some(judge)) = (NAME.load(Ordering::Relaxed), Judge::current()) else { return Ok(()) };
    if name.is_null() {
        return Ok(());
    }
    give_selected(python, name, |code| judge.known(code))
}

/// Gives versions to all selected functions of the running interpreter, which is not the main one, once per
/// selector. They keep their versions when the session is over.
#[cold]
pub(super) fn give_versions_here(python: Python<'_>, block: Block) {
    let (name, Some(judge)) = (NAME.load(Ordering::Relaxed), Judge::current()) else { return };
    let Some(kept) = Kept::here(python).filter(|_| !name.is_null()) else { return };
    let epoch = i64::from(judge.epoch());
    if kept.number(KeptObject::Versions) == Some(epoch) {
        return;
    }
    kept.keep_number(KeptObject::Versions, epoch);
    let verdict = |code: Code<'_>| Some(judge.known(code).unwrap_or_else(|| judge.judge(block, code, None)));
    if give_selected(python, name, verdict).is_err() {
        python.clear();
    }
}

/// Gives versions to the running interpreter's functions that have the name and are selected.
fn give_selected(
    python: Python<'_>,
    name: *mut Object,
    verdict: impl Fn(Code<'_>) -> Option<Verdict>,
) -> Result<(), Fault> {
    each_function(python, |function, code| {
        if code.is_named(name) && matches!(verdict(code), Some(Verdict::Function(_) | Verdict::ByCaller(_))) {
            // SAFETY: a living function.
            unsafe { give_version(function.as_ptr()) };
        }
    })
}

/// Takes back all of our versions.
pub(super) fn take_back(python: Python<'_>) {
    if !GIVEN.swap(false, Ordering::Relaxed) {
        return;
    }
    let taken = each_function(python, |function, _| {
        // SAFETY: a living function.
        let version = unsafe { version(function.as_ptr()) };
        if version.load(Ordering::Relaxed) >= OURS {
            version.store(0, Ordering::Relaxed);
        }
    });
    if taken.is_err() {
        // We could not list the functions. They keep our versions, and their subscripts are evaluated as with
        // a hook.
        GIVEN.store(true, Ordering::Relaxed);
    }
}

/// # Safety
/// A living function.
unsafe fn give_version(function: *mut Object) {
    // SAFETY: as the caller promises.
    let version = unsafe { version(function) };
    if version.load(Ordering::Relaxed) < OURS {
        GIVEN.store(true, Ordering::Relaxed);
        // We give no number twice: code that was specialised for one function would call the other.
        version.store(NEXT.fetch_sub(1, Ordering::Relaxed) | OURS, Ordering::Relaxed);
    }
}

/// # Safety
/// A living function of 3.11.
unsafe fn version<'f>(function: *mut Object) -> &'f AtomicU32 {
    // SAFETY: as the caller promises; every reader and writer holds the GIL.
    unsafe { NonNull::new_unchecked(function.wrapping_byte_add(VERSION).cast::<AtomicU32>()).as_ref() }
}
