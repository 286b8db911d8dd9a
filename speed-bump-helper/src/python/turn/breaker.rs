//! Makes Python's main thread check the queue of pending calls.
//!
//! From 3.9 to 3.12 `Py_AddPendingCall` tells the main thread of a call only if the main thread itself calls
//! it (`COMPUTE_EVAL_BREAKER` in Python/ceval.c or ceval_gil.c). Otherwise that thread makes the call only
//! after it has waited for the GIL again. So the helper sets the word that makes a thread check, as CPython
//! does in earlier and later versions. The offsets are those that `offsetof` gives with the headers of
//! 3.9.18, 3.10.13, 3.11.7 and 3.12.1.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicI32, Ordering},
};

use crate::python::api::Api;

/// A higher limit of recursion shows that the offsets are wrong.
const MAX_RECURSION: i32 = 100_000_000;

/// Makes the main thread check before it goes on with Python code. If the values at the offsets are not
/// plausible, does nothing.
pub(super) fn pull(api: &Api) {
    // `eval_breaker`, `gil_drop_request` and `recursion_limit` of `PyInterpreterState.ceval`.
    let (breaker, request, limit) = match api.version.minor() {
        (3, 9) => (72, 76, 64),
        (3, 10) => (68, 72, 64),
        (3, 11) => (100, 104, 96),
        (3, 12) => (368, 372, 376),
        _ => return,
    };
    // SAFETY: it needs no GIL, and the main interpreter is there until Python is finalized.
    let Some(interpreter) = NonNull::new(unsafe { (api.interpreter_main)() }) else { return };
    // SAFETY: in the interpreter, aligned; CPython reads and writes them as atomics, or in one access.
    let word = |offset: usize| unsafe { interpreter.cast::<u8>().add(offset).cast::<AtomicI32>().as_ref() };
    let is = |offset, most| (0..=most).contains(&word(offset).load(Ordering::Relaxed));
    if is(breaker, 1) && is(request, 1) && is(limit, MAX_RECURSION) && word(limit).load(Ordering::Relaxed) > 0
    {
        word(breaker).store(1, Ordering::Release);
    }
}
