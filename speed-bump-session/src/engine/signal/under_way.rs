//! Waits for signals that are in flight in processes, before they get another delay.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::masks;
use crate::{process::Process, units::Pid};

/// The longest time for which a signal may be in flight.
const LONGEST: Duration = Duration::from_millis(500);
/// The time between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Signals that nobody sends any more, but that may still be in flight. Do not wait for them while you hold a
/// lock that others need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "until you have waited for the signals, they may have their old delay"]
pub struct UnderWay {
    /// The signals: bit N is signal N + 1.
    pub(crate) signals: u64,
    pub(crate) processes: Vec<Pid>,
}

impl UnderWay {
    /// Waits until none of the signals is in flight, up to the time limit.
    pub fn wait(&self) {
        if self.signals == 0 {
            return;
        }
        // A BPF program may have read the former doses. It sends its signal within microseconds.
        thread::sleep(LOOK_EVERY);
        for owner in &self.processes {
            wait_until_clear(*owner, self.signals);
        }
    }
}

/// Waits until none of these signals is in flight in a process, up to the time limit. Bit N is signal N + 1.
/// Returns whether none is in flight.
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
