//! Whether one thread at a time runs Python code in this process.
//!
//! That is not so in builds without a GIL. From 3.12 on an interpreter may also have a GIL of its own (PEP
//! 684). CPython does not export which ones do, so we assume that all but the main one do.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::python::{api::Api, gil::Gil};

/// Which lock a thread holds when a call starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// The main interpreter's; up to 3.11, the one of all interpreters. In builds without a GIL, none.
    Main,
    /// Maybe another interpreter's lock.
    Another,
}

/// Whether calls under other locks may be reported.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Whether several threads may run Python code at the same time.
#[inline]
pub(crate) fn may_be_several() -> bool {
    SEVERAL.load(Ordering::Relaxed) || Api::found().is_some_and(|api| api.version.free_threaded)
}

/// Must be called before calls of another interpreter are reported: from here on, several threads may run
/// Python code. `false`: the interpreter is not there.
pub(crate) fn expect_several(api: &'static Api) -> bool {
    if SEVERAL.load(Ordering::Relaxed) {
        return true;
    }
    // We hold the GIL, so that no thread relies on being alone at this moment.
    let gil = Gil::take(api);
    if gil.is_some() {
        SEVERAL.store(true, Ordering::Relaxed);
    }
    gil.is_some()
}
