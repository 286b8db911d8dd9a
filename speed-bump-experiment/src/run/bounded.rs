//! Bounds how much each thread is delayed. The session enforces the bound, so that no error in a plan, or in
//! the numbers behind it, makes a thread slower than that.
//!
//! A test plans delays of up to twice the allowed slow-down for one thread, if most of them are hidden. The
//! ladder plans longer delays for a function whose delays hardly show. Only then does the bound rise.

use super::{Runner, Stop};
use crate::units::Nanos;

/// A bound applies to windows of this length, or of one unit if that takes longer.
const WINDOW_NS: f64 = 1e8;
/// How much one thread may be delayed, as a multiple of the allowed slow-down.
const OF_THREAD: f64 = 2.0;

impl Runner<'_> {
    /// Bounds how much each thread is delayed, for a plan of up to `times` the allowed slow-down.
    pub(super) fn bound_threads(&mut self, times: f64) -> Result<(), Stop> {
        let most = self.options.doses.iter().copied().fold(self.measured.rules.max_slowdown, f64::max);
        let unit = self.unit.max(self.pace).max(self.latency.unwrap_or_default());
        let (share, window) = bound(most * times, unit);
        Ok(self.subject.bound(share, window)?)
    }
}

/// The share of its time for which a thread may be delayed, and the window, if functions are delayed by at
/// most `most` of a unit.
fn bound(most: f64, unit: f64) -> (f64, Nanos) {
    let planned = OF_THREAD * most;
    let share = planned.min(1.0);
    // The window has room for the longest planned delay: several units, if a delay takes longer than one.
    (share, Nanos((unit * planned / share).max(WINDOW_NS) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_delayed_for_twice_what_is_allowed_within_100_ms_or_a_unit() {
        assert_eq!(bound(0.2, 1e6), (0.4, Nanos(100_000_000)));
        assert_eq!(bound(0.2, 1e9), (0.4, Nanos(1_000_000_000)));
    }

    #[test]
    fn longer_delays_than_a_unit_have_room_where_they_are_planned() {
        let (share, window) = bound(8.0 * 0.2, 1e9);
        assert_eq!((share, window), (1.0, Nanos(3_200_000_000)));
        assert!(share * window.0 as f64 >= 1.6e9);
    }
}
