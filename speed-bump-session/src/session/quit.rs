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
}

impl Quit {
    /// From here on nothing is delayed, and no session begins.
    pub fn ask(&self) {
        self.0.is_asked.store(true, Ordering::SeqCst);
        self.0.session.lock().unwrap_or_else(PoisonError::into_inner).ask();
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
}
