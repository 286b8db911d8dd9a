//! Progress of the preparation: prints the current step and its duration each second.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::super::terminal::tell;
use crate::experiment::sweep::Step;

/// How often a running step is printed.
const EVERY: Duration = Duration::from_secs(1);

/// Prints steps until it is dropped.
pub(super) struct Preparing {
    shared: Arc<Shared>,
    printer: Option<JoinHandle<()>>,
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
    /// Starts the printing thread; with `quiet` it prints nothing.
    pub(super) fn begin(quiet: bool) -> Self {
        let shared = Arc::<Shared>::default();
        let for_thread = Arc::clone(&shared);
        // If the thread cannot start, the steps are not printed.
        let printer = (!quiet)
            .then(|| thread::Builder::new().name("preparing".to_owned()).spawn(move || for_thread.print()))
            .and_then(Result::ok);
        Self { shared, printer }
    }

    /// Begins the next step.
    pub(super) fn step(&self, step: Step) {
        *self.shared.running() = Running { step, ..Running::default() };
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.shared.running().ended = true;
        self.shared.changed.notify_all();
        if let Some(printer) = self.printer.take() {
            let _ = printer.join();
        }
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print(&self) {
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
