//! Doses of an experiment expire when the thread that sets them hangs.
//!
//! The session renews its doses while the tool runs. But the thread of an experiment may hang: in a write to
//! a frozen terminal, or in a file system that never answers. So another thread takes all doses back when it
//! has not heard from the experiment's thread for a while.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Longer than any step of an experiment: reading a page of a metric takes up to 2 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Watches a thread. Dropping it ends the watching thread.
#[derive(Debug)]
pub(super) struct Expiry {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    /// Whether any function has a dose.
    is_delayed: bool,
    heard: Instant,
    has_expired: bool,
    is_over: bool,
}

impl Expiry {
    /// Starts to watch the calling thread, and calls `take_back` when the thread was silent for `patience`.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn watch(patience: Duration, take_back: impl Fn() + Send + 'static) -> io::Result<Self> {
        let state = State { is_delayed: false, heard: Instant::now(), has_expired: false, is_over: false };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let watched = Arc::clone(&shared);
        let work = move || {
            let (state, changed) = &*watched;
            let mut state = lock(state);
            while !state.is_over {
                let left = patience.saturating_sub(state.heard.elapsed());
                state = if !state.is_delayed {
                    changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                } else if left.is_zero() {
                    take_back();
                    (state.is_delayed, state.has_expired) = (false, true);
                    state
                } else {
                    changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                };
            }
        };
        let thread = thread::Builder::new().name("expiry".to_owned()).spawn(work)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The watched thread reports that it runs. Returns whether doses have expired since they were last set;
    /// then none is in effect.
    pub(super) fn hear(&self) -> bool {
        let mut state = lock(&self.shared.0);
        state.heard = Instant::now();
        state.has_expired
    }

    /// Sets doses; afterwards any function has one, or none has. They cannot expire during this call.
    ///
    /// # Errors
    /// As `set`: the old doses stay in effect.
    pub(super) fn while_set<T, E>(
        &self,
        is_delayed: bool,
        set: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = lock(&self.shared.0);
        let result = set();
        state.is_delayed = is_delayed || (result.is_err() && state.is_delayed);
        (state.has_expired, state.heard) = (false, Instant::now());
        self.shared.1.notify_one();
        result
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        lock(&self.shared.0).is_over = true;
        self.shared.1.notify_one();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The state is consistent after each change.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc::channel;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    fn done() -> Result<(), ()> {
        Ok(())
    }

    #[test]
    fn doses_of_a_thread_that_hangs_are_taken_back_once() {
        let (tell, told) = channel();
        let expiry = Expiry::watch(SHORT, move || tell.send(()).unwrap()).unwrap();
        expiry.while_set(true, done).unwrap();
        told.recv_timeout(LONG).unwrap();
        expiry.while_set(false, done).unwrap();
        assert!(!expiry.hear(), "new doses have not expired");
        expiry.while_set(true, done).unwrap();
        told.recv_timeout(LONG).unwrap();
        drop(expiry);
        assert!(told.recv().is_err());
    }

    #[test]
    fn doses_expire_if_setting_to_zero_failed() {
        let (tell, told) = channel();
        let expiry = Expiry::watch(SHORT, move || tell.send(()).unwrap()).unwrap();
        expiry.while_set(true, done).unwrap();
        expiry.while_set(false, || Err::<(), ()>(())).unwrap_err();
        told.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn without_doses_nothing_expires() {
        let (tell, told) = channel();
        let expiry = Expiry::watch(SHORT, move || tell.send(()).unwrap()).unwrap();
        expiry.while_set(false, done).unwrap();
        assert!(told.recv_timeout(10 * SHORT).is_err() && !expiry.hear());
    }

    #[test]
    fn a_running_thread_keeps_its_doses() {
        let (tell, told) = channel();
        let expiry = Expiry::watch(LONG, move || tell.send(()).unwrap()).unwrap();
        expiry.while_set(true, done).unwrap();
        assert!(!expiry.hear());
        assert!(told.recv_timeout(SHORT).is_err());
    }
}
