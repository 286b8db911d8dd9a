//! Ending from outside what has one session after the other: by a signal, or by whoever serves it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::stop::Stop;

/// Asks for an end, from any thread. Clones ask for the same one.
#[derive(Clone, Debug, Default)]
pub struct Quit(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_asked: AtomicBool,
    session: Mutex<Stop>,
    /// The last one that this one ends too.
    below: Mutex<Option<Quit>>,
}

impl Quit {
    /// From here on nothing is delayed, and no session begins.
    pub fn ask(&self) {
        self.0.is_asked.store(true, Ordering::SeqCst);
        self.0.session.lock().unwrap_or_else(PoisonError::into_inner).ask();
        if let Some(below) = &*self.0.below.lock().unwrap_or_else(PoisonError::into_inner) {
            below.ask();
        }
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        self.0.is_asked.load(Ordering::SeqCst)
    }

    /// What stops the next session; asked already if there is to be none.
    pub fn next_stop(&self) -> Stop {
        let stop = Stop::default();
        *self.0.session.lock().unwrap_or_else(PoisonError::into_inner) = stop.clone();
        if self.is_asked() {
            stop.ask();
        }
        stop
    }

    /// Another one, which ends when this one is asked, and can be asked by itself. Of several, the last ends
    /// with this one.
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
