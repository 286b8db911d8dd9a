//! How many services run side by side: no more than there are processors, and fewer where they are busy.

use std::sync::{Condvar, Mutex, PoisonError};

/// A part of this machine, given back when it is dropped.
pub(crate) struct Share(usize);

/// What is taken, in halves of a processor.
static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

impl Share {
    /// For a service that mostly waits, and has no expected verdict.
    pub(crate) fn tiny() -> Self {
        Self::take(1)
    }

    /// For a service that mostly waits: a processor. Blocks until there is one.
    pub(crate) fn small() -> Self {
        Self::take(2)
    }

    /// For a service that keeps a processor busy, or has more than one process: half of another one as well,
    /// for the tool.
    pub(crate) fn large() -> Self {
        Self::take(3)
    }

    /// The whole machine.
    pub(crate) fn whole() -> Self {
        Self::take(all())
    }

    fn take(wanted: usize) -> Self {
        let wanted = wanted.min(all());
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = GIVEN_BACK.wait_while(taken, |taken| *taken + wanted > all());
        *taken.unwrap_or_else(PoisonError::into_inner) += wanted;
        Self(wanted)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        GIVEN_BACK.notify_all();
    }
}

/// One half more than there are, so that a busy service and one that waits have room on two processors.
fn all() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) * 2 + 1
}
