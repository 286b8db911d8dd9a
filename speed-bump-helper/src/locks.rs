//! Whether one thread at a time runs Python code in this process.
//!
//! Not in builds without a GIL. From 3.12 on an interpreter may have a GIL of its own, too (PEP 684): which
//! of them do is not exported, so all but the main one are taken for such.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::python::{api::Api, gil::Gil};

/// Which lock a thread holds in which a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// The main interpreter's; up to 3.11, every interpreter's. In builds without a GIL, none.
    Main,
    /// Maybe another interpreter's lock.
    Another,
}

/// Calls of interpreters with other locks may be heard of.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Whether threads may run Python code at the same time.
#[inline]
pub(crate) fn may_be_several() -> bool {
    SEVERAL.load(Ordering::Relaxed) || Api::found().is_some_and(|api| api.version.free_threaded)
}

/// They may from here on: before any call of another interpreter is heard of. `false`: the interpreter is not
/// there.
pub(crate) fn expect_several(api: &'static Api) -> bool {
    if SEVERAL.load(Ordering::Relaxed) {
        return true;
    }
    // So that no thread relies on its being alone at this moment.
    let gil = Gil::take(api);
    if gil.is_some() {
        SEVERAL.store(true, Ordering::Relaxed);
    }
    gil.is_some()
}
