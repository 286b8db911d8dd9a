//! Signals on their way in processes, which have to be waited out before they stand for something else.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::masks;
use crate::{process::Process, units::Pid};

/// How long the last signals may be on their way.
const LONGEST: Duration = Duration::from_millis(500);
/// How often it is looked whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Signals that were sent until a moment ago, and nobody sends any more. Whoever waits for them holds no lock
/// that others need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "their old meaning holds until they were waited for"]
pub struct UnderWay {
    /// Bit N is signal N + 1.
    pub(crate) signals: u64,
    pub(crate) processes: Vec<Pid>,
}

impl UnderWay {
    /// Waits until none of them is on its way, for as long as that may take.
    pub fn wait(&self) {
        if self.signals == 0 {
            return;
        }
        // A program that has compared the doses before sends its signal within microseconds.
        thread::sleep(LOOK_EVERY);
        for owner in &self.processes {
            wait_until_clear(*owner, self.signals);
        }
    }
}

/// Waits until none of these signals is on its way in a process; bit N is signal N + 1. Whether that is so.
pub(crate) fn wait_until_clear(owner: Pid, signals: u64) -> bool {
    let Ok(process) = Process::open(owner) else { return false };
    let is_clear = || masks(&process).is_ok_and(|masks| masks.pending & signals == 0);
    let until = Instant::now() + LONGEST;
    while !is_clear() {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    true
}
