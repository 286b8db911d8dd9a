//! How many services run side by side: one on each processor, and no more than half of them busy ones.

use std::sync::{Condvar, Mutex, PoisonError};

/// A part of this machine, given back when it is dropped.
pub(crate) struct Share(usize);

/// What is taken, in fifths of two processors.
static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

impl Share {
    /// That of a service that waits for most of its time; waits for it.
    pub(crate) fn small() -> Self {
        Self::take(2)
    }

    /// That of a service that keeps one processor busy.
    pub(crate) fn large() -> Self {
        Self::take(3)
    }

    /// All of the machine.
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

fn all() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) * 5 / 2
}
