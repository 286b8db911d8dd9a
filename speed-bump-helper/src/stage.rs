//! How far Python has started, in a program that got the helper at its entry point.

use core::sync::atomic::{AtomicU32, Ordering};

/// The stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stage {
    /// No session waits for Python.
    Idle = 0,
    /// A session waits for it.
    Armed = 1,
    /// A session has started, and Python does not count as initialised yet.
    Early = 2,
}

static STAGE: AtomicU32 = AtomicU32::new(Stage::Idle as u32);

impl Stage {
    /// The current stage.
    #[inline]
    pub(crate) fn now() -> Self {
        match STAGE.load(Ordering::Acquire) {
            1 => Self::Armed,
            2 => Self::Early,
            _ => Self::Idle,
        }
    }

    /// Changes the stage.
    pub(crate) fn begin(self) {
        STAGE.store(self as u32, Ordering::Release);
    }

    /// Changes the stage, if it was `before` until now. Returns whether it was.
    pub(crate) fn begin_after(self, before: Self) -> bool {
        STAGE.compare_exchange(before as u32, self as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
