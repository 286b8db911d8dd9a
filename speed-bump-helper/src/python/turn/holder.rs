//! Finds which thread has the GIL, without holding it.
//!
//! Up to 3.11 CPython exports which thread state has it. Later versions store it in the interpreter: 3.12 at
//! the offset that `offsetof` gives with the headers of 3.12.1; 3.13 and later export the offset
//! (`_Py_DebugOffsets`). We ignore a place that does not look like a GIL.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicI32, AtomicUsize, Ordering},
};

use crate::python::api::Api;

/// Who has the GIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Free,
    /// A thread state, by its address, which is only compared.
    Thread(usize),
}

/// `PyInterpreterState.ceval.gil` of 3.12, and `last_holder` and `locked` of `struct _gil_runtime_state`.
const GIL_312: usize = 384;
const LAST_HOLDER: usize = 8;
const LOCKED: usize = 16;
/// A GIL lies in the interpreter that owns it. No interpreter is larger than this.
const LARGEST: usize = 4 << 20;
/// Words of `_Py_DebugOffsets` that we read.
const DESCRIBED: usize = 20;

/// Finds who has the GIL. `None`: that is unknown, or there is no GIL.
pub(super) fn holder(api: &Api) -> Option<Holder> {
    if api.version.free_threaded {
        return None;
    }
    if let (Some(current), true) = (api.holder, api.version.minor() < (3, 12)) {
        // SAFETY: it reads one word of `_PyRuntime` (Python/pystate.c), and needs no GIL.
        let holder = unsafe { current() } as usize;
        return Some(if holder == 0 { Holder::Free } else { Holder::Thread(holder) });
    }
    let (last_holder, locked) = places(api)?;
    match locked.load(Ordering::Acquire) {
        0 => Some(Holder::Free),
        1 => Some(Holder::Thread(last_holder.load(Ordering::Relaxed))),
        _ => None,
    }
}

/// Where the main interpreter's GIL stores its holder, and whether it is held.
fn places(api: &Api) -> Option<(&'static AtomicUsize, &'static AtomicI32)> {
    // SAFETY: it needs no GIL, and the main interpreter is there until Python is finalized.
    let interpreter = NonNull::new(unsafe { (api.interpreter_main)() })?.cast::<u8>();
    let (last_holder, locked) = match api.version.minor() {
        (3, 12) => {
            // SAFETY: in the interpreter, aligned.
            let gil = unsafe { interpreter.add(GIL_312).cast::<AtomicUsize>().as_ref() };
            let gil = gil.load(Ordering::Acquire).checked_sub(interpreter.as_ptr() as usize)?;
            (gil.checked_add(LAST_HOLDER)?, gil.checked_add(LOCKED)?)
        }
        minor if minor >= (3, 13) => described(api)?,
        _ => return None,
    };
    let fits = last_holder.is_multiple_of(8)
        && locked == last_holder.checked_add(LOCKED - LAST_HOLDER)?
        && locked < LARGEST;
    // SAFETY: in the interpreter, aligned; the interpreter exists until Python is finalized.
    fits.then(|| unsafe {
        (interpreter.add(last_holder).cast().as_ref(), interpreter.add(locked).cast().as_ref())
    })
}

/// The offsets of the two [`places`] in the interpreter, as CPython exports them
/// (Include/internal/pycore_debug_offsets.h).
fn described(api: &Api) -> Option<(usize, usize)> {
    let runtime = api.library.symbol(c"_PyRuntime")?.cast::<[u64; DESCRIBED]>();
    // SAFETY: `_PyRuntime` begins with these offsets, which are larger than that and never written.
    let words = unsafe { runtime.as_ref() };
    if words[0] != u64::from_le_bytes(*b"xdebugpy") {
        return None;
    }
    // `threads_main` came with 3.14.
    let locked = if api.version.minor() == (3, 13) { 17 } else { 18 };
    let offset = |word: usize| usize::try_from(*words.get(word)?).ok();
    Some((offset(locked + 1)?, offset(locked)?))
}
