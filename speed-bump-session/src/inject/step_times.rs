//! The durations of an injection's steps.

use std::time::Instant;

use crate::units::Nanos;

/// The steps of an injection, and how long each took.
#[derive(Debug)]
pub(super) struct StepTimes {
    since: Instant,
    done: Vec<(&'static str, Nanos)>,
}

impl StepTimes {
    /// Starts the first step.
    pub(super) fn start() -> Self {
        Self { since: Instant::now(), done: Vec::new() }
    }

    /// Ends the present step, and starts the next one.
    pub(super) fn step_done(&mut self, step: &'static str) {
        let now = Instant::now();
        self.done.push((step, Nanos::from(now - self.since)));
        self.since = now;
    }

    /// The steps, in order.
    pub(super) fn steps(self) -> Vec<(&'static str, Nanos)> {
        self.done
    }
}
