//! How far Python has come in a program that the helper was brought into at its start.

use core::sync::atomic::{AtomicU32, Ordering};

/// How far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stage {
    /// Nothing waits for Python.
    Idle = 0,
    /// A session waits for it.
    Armed = 1,
    /// A session has begun, and Python does not count as initialised yet.
    Early = 2,
}

static STAGE: AtomicU32 = AtomicU32::new(Stage::Idle as u32);

impl Stage {
    /// As it is now.
    #[inline]
    pub(crate) fn now() -> Self {
        match STAGE.load(Ordering::Acquire) {
            1 => Self::Armed,
            2 => Self::Early,
            _ => Self::Idle,
        }
    }

    /// It is this one from here on.
    pub(crate) fn begin(self) {
        STAGE.store(self as u32, Ordering::Release);
    }

    /// The same, if it was that one until now. Whether it was.
    pub(crate) fn begin_after(self, before: Self) -> bool {
        STAGE.compare_exchange(before as u32, self as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
