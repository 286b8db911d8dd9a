//! What is told while nothing is measured yet: what it is at, and each second for how long.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::super::terminal::tell;
use crate::units::Nanos;

/// So often it is told that a step goes on.
const EVERY: Duration = Duration::from_secs(1);

/// Tells of steps until it is dropped.
pub(super) struct Preparing {
    shared: Arc<Shared>,
    teller: Option<JoinHandle<()>>,
    quiet: bool,
    /// When all of the time is up.
    pub(super) ends: Nanos,
}

#[derive(Default)]
struct Shared {
    step: Mutex<Step>,
    changed: Condvar,
}

struct Step {
    what: &'static str,
    begun: Instant,
    ended: bool,
}

impl Default for Step {
    fn default() -> Self {
        Self { what: "prepare", begun: Instant::now(), ended: false }
    }
}

impl Preparing {
    /// Begins; `quiet`: without a word. All of the time is up at `ends`.
    pub(super) fn begin(quiet: bool, ends: Nanos) -> Self {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        // Without it, less is told.
        let teller = (!quiet)
            .then(|| thread::Builder::new().name("preparing".to_owned()).spawn(move || of_thread.tell()))
            .and_then(Result::ok);
        Self { shared, teller, quiet, ends }
    }

    /// Says something, unless nothing is to be said.
    pub(super) fn line(&self, text: &str) {
        if !self.quiet {
            tell(text);
        }
    }

    /// The next step.
    pub(super) fn step(&self, what: &'static str) {
        *self.shared.step() = Step { what, ..Step::default() };
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.shared.step().ended = true;
        self.shared.changed.notify_all();
        if let Some(teller) = self.teller.take() {
            let _ = teller.join();
        }
    }
}

impl Shared {
    fn step(&self) -> std::sync::MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let mut step = self.step();
        loop {
            let waited = self.changed.wait_timeout_while(step, EVERY, |step| !step.ended);
            step = waited.unwrap_or_else(PoisonError::into_inner).0;
            if step.ended {
                return;
            }
            let seconds = step.begun.elapsed().as_secs();
            if seconds > 0 {
                tell(format_args!("{}: {seconds} s so far", step.what));
            }
        }
    }
}
