//! The bound on the delays of a thread, whatever the doses of a session are.

use std::time::Duration;

use speed_bump_abi::Bound;

use crate::units::Nanos;

/// The share of its time for which delays may hold up a thread, whatever the doses are. BPF programs and
/// helpers enforce the bound themselves. If a delay would exceed the bound, they leave out the whole delay
/// and count the call as `bounded`.
///
/// Over any stretch of time, the delays of a thread take at most the share of this stretch plus the share of
/// one window. No delay is longer than the share of one window. Helper and BPF programs count separately: if
/// both delay functions in one thread (Python and native ones), the thread may lose twice as much. We count
/// delays in the thread's own time: if something else keeps the thread from running during a delay, the
/// thread loses more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayBound {
    /// The share, as in [`Bound::share`].
    share: u64,
    window: Nanos,
}

/// Why a bound is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BoundError {
    /// This is not a share of the time.
    #[error("{0} is no share of the time that delays may take: give one above 0, and 1 at most")]
    Share(f64),
    /// The window has no length.
    #[error("a bound on delays needs a window of some length: give 100 ms or more")]
    Window,
}

impl DelayBound {
    /// A bound of this share of the time (at most 1), with windows of this length.
    ///
    /// # Errors
    /// The share is invalid, or the window has no length.
    pub fn new(share: f64, window: Duration) -> Result<Self, BoundError> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(BoundError::Share(share));
        }
        if window.is_zero() {
            return Err(BoundError::Window);
        }
        // Rounds down. The least value is 1, because 0 would mean that there is no bound.
        let parts = ((share * Bound::ONE as f64) as u64).max(1);
        Ok(Self { share: parts, window: Nanos::from(window) })
    }

    /// The share of its time for which delays may hold up a thread.
    pub fn share(self) -> f64 {
        self.share as f64 / Bound::ONE as f64
    }

    /// The longest possible delay.
    pub fn longest(self) -> Nanos {
        Nanos(self.to_words().room)
    }

    /// The bound in the form that BPF programs and helpers use.
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
