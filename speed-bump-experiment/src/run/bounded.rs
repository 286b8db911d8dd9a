//! The bound on what each thread is delayed, which the session keeps to by itself: no mistake of the plan, or
//! of what the plan goes by, makes a thread slower than that.
//!
//! A test plans up to twice the slow-down that is allowed for one thread, where most of it is hidden. The
//! ladder plans more for a function of which next to nothing shows: then the bound rises, and no earlier.

use super::{Runner, Stop};
use crate::units::Nanos;

/// A bound is for windows of this length, or of one unit where that takes longer.
const WINDOW_NS: f64 = 1e8;
/// What one thread may be delayed, as a multiple of the slow-down that is allowed.
const OF_THREAD: f64 = 2.0;

impl Runner<'_> {
    /// Bounds what each thread is delayed, for a plan of up to so many times the slow-down that is allowed.
    pub(super) fn bound_threads(&mut self, times: f64) -> Result<(), Stop> {
        let most = self.options.doses.iter().copied().fold(self.measured.rules.max_slowdown, f64::max);
        let unit = self.unit.max(self.pace).max(self.latency.unwrap_or_default());
        let (share, window) = bound(most * times, unit);
        Ok(self.subject.bound(share, window)?)
    }
}

/// The share of its time that a thread may be delayed, and the window, where functions are delayed by this
/// share of a unit at most.
fn bound(most: f64, unit: f64) -> (f64, Nanos) {
    let planned = OF_THREAD * most;
    let share = planned.min(1.0);
    // The longest delay that is planned has room: as many units as it takes, where a thread has no more time.
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
