//! What is told while nothing is measured yet: what it is at, and each second for how long.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::super::terminal::tell;
use crate::experiment::sweep::Step;

/// So often it is told that a step goes on.
const EVERY: Duration = Duration::from_secs(1);

/// Tells of steps until it is dropped.
pub(super) struct Preparing {
    shared: Arc<Shared>,
    teller: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    running: Mutex<Running>,
    changed: Condvar,
}

struct Running {
    step: Step,
    begun: Instant,
    ended: bool,
}

impl Default for Running {
    fn default() -> Self {
        Self { step: Step::Prepare, begun: Instant::now(), ended: false }
    }
}

impl Preparing {
    /// Begins; `quiet`: without a word.
    pub(super) fn begin(quiet: bool) -> Self {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        // Without it, less is told.
        let teller = (!quiet)
            .then(|| thread::Builder::new().name("preparing".to_owned()).spawn(move || of_thread.tell()))
            .and_then(Result::ok);
        Self { shared, teller }
    }

    /// The next step.
    pub(super) fn step(&self, step: Step) {
        *self.shared.running() = Running { step, ..Running::default() };
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.shared.running().ended = true;
        self.shared.changed.notify_all();
        if let Some(teller) = self.teller.take() {
            let _ = teller.join();
        }
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let mut running = self.running();
        loop {
            let waited = self.changed.wait_timeout_while(running, EVERY, |running| !running.ended);
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
            if running.ended {
                return;
            }
            let seconds = running.begun.elapsed().as_secs();
            if seconds > 0 {
                tell(format_args!("{}: {seconds} s so far", running.step));
            }
        }
    }
}
