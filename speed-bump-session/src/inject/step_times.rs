//! Where the time of an injection goes.

use std::time::Instant;

use crate::units::Nanos;

/// Steps one after the other, with how long each took.
#[derive(Debug)]
pub(super) struct StepTimes {
    since: Instant,
    done: Vec<(&'static str, Nanos)>,
}

impl StepTimes {
    /// The first step begins now.
    pub(super) fn start() -> Self {
        Self { since: Instant::now(), done: Vec::new() }
    }

    /// A step is over and the next begins.
    pub(super) fn step_done(&mut self, step: &'static str) {
        let now = Instant::now();
        self.done.push((step, Nanos::from(now - self.since)));
        self.since = now;
    }

    /// The steps, in their order.
    pub(super) fn steps(self) -> Vec<(&'static str, Nanos)> {
        self.done
    }
}
