//! Ends a series of sessions from outside: on a signal, or when the server of the sessions ends.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::stop::Stop;

/// Ends a series of sessions. Any thread may ask for that. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Quit(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_asked: AtomicBool,
    session: Mutex<Stop>,
    /// The latest [`Quit`] that ends together with this one.
    below: Mutex<Option<Quit>>,
}

impl Quit {
    /// From now on nothing is delayed, and no session begins.
    pub fn ask(&self) {
        self.0.is_asked.store(true, Ordering::SeqCst);
        self.0.session.lock().unwrap_or_else(PoisonError::into_inner).ask();
        if let Some(below) = &*self.0.below.lock().unwrap_or_else(PoisonError::into_inner) {
            below.ask();
        }
    }

    /// Whether something asked for the end.
    pub fn is_asked(&self) -> bool {
        self.0.is_asked.load(Ordering::SeqCst)
    }

    /// The [`Stop`] of the next session. If the series has ended, this `Stop` has already been asked to stop.
    pub fn next_stop(&self) -> Stop {
        let stop = Stop::default();
        *self.0.session.lock().unwrap_or_else(PoisonError::into_inner) = stop.clone();
        if self.is_asked() {
            stop.ask();
        }
        stop
    }

    /// Makes another [`Quit`], which ends together with this one. A caller can also ask the new one alone to
    /// end. Only the newest `Quit` that this method made ends together with this one.
    pub fn next_quit(&self) -> Self {
        let below = Self::default();
        *self.0.below.lock().unwrap_or_else(PoisonError::into_inner) = Some(below.clone());
        if self.is_asked() {
            below.ask();
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_ends_with_it_and_not_the_other_way_round() {
        let above = Quit::default();
        let first = above.next_quit();
        first.ask();
        assert!(first.is_asked() && !above.is_asked());
        let second = above.next_quit();
        let stop = second.next_stop();
        assert!(!second.is_asked() && stop.times() == 0);
        above.ask();
        assert!(above.is_asked() && second.is_asked() && stop.times() == 1);
        assert!(above.next_quit().is_asked());
    }
}
