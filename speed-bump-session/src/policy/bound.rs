//! The bound on what a session delays a thread, whatever its doses are.

use std::time::Duration;

use speed_bump_abi::Bound;

use crate::units::Nanos;

/// How much of its time a thread may be delayed, whatever the doses are: BPF programs and helpers keep to it
/// by themselves. A delay that would be too much is left out, as a whole; the call is counted as `bounded`.
///
/// Over any stretch of time, the delays of a thread take at most the share of that stretch and of one window.
/// No delay is longer than the share of a window. Helper and BPF programs count by themselves: a thread in
/// which both delay functions, Python and native ones, may get twice as much. What counts is the thread's own
/// time: a thread that is kept from running in a delay loses more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayBound {
    /// As in [`Bound::share`].
    share: u64,
    window: Nanos,
}

/// Why something is no bound.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BoundError {
    /// It is no share of the time.
    #[error("{0} is no share of the time that delays may take: give one above 0, and 1 at most")]
    Share(f64),
    /// The window has no length.
    #[error("a bound on delays needs a window of some length: give 100 ms or more")]
    Window,
}

impl DelayBound {
    /// A share of the time, 1 at most, within windows of this length.
    ///
    /// # Errors
    /// Not a share of the time, or no window.
    pub fn new(share: f64, window: Duration) -> Result<Self, BoundError> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(BoundError::Share(share));
        }
        if window.is_zero() {
            return Err(BoundError::Window);
        }
        // Rounded down, but 0 would be no bound.
        let parts = ((share * Bound::ONE as f64) as u64).max(1);
        Ok(Self { share: parts, window: Nanos::from(window) })
    }

    /// The share of its time that a thread may be delayed.
    pub fn share(self) -> f64 {
        self.share as f64 / Bound::ONE as f64
    }

    /// The longest delay: longer ones are never made.
    pub fn longest(self) -> Nanos {
        Nanos(self.to_words().room)
    }

    /// What the programs go by.
    pub(crate) fn to_words(self) -> Bound {
        Bound::new(self.share, self.window.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_bound_is_a_share_of_the_time() {
        let window = Duration::from_millis(100);
        let bound = DelayBound::new(0.2, window).unwrap();
        assert!((bound.share() - 0.2).abs() < 1e-6 && bound.share() <= 0.2);
        assert!((19_999_000..=20_000_000).contains(&bound.longest().0), "{bound:?}");
        assert_eq!(DelayBound::new(1.0, window).unwrap().longest(), Nanos(100_000_000));
        assert!(DelayBound::new(1e-12, window).unwrap().to_words().is_set(), "0 would be no bound");
        for share in [0.0, -0.2, 1.01, f64::NAN, f64::INFINITY] {
            let error = DelayBound::new(share, window).unwrap_err();
            assert!(error.to_string().starts_with(&share.to_string()), "{error}");
        }
        assert_eq!(DelayBound::new(0.2, Duration::ZERO), Err(BoundError::Window));
    }
}
