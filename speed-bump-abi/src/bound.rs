//! A bound on what threads are delayed, which the BPF programs and the helper keep to by themselves: whatever
//! doses the loader sets, no thread is delayed for more than a share of its time.
//!
//! Each thread has a leaky bucket. A delay that begins adds its length; the bucket leaks the share of the
//! time that passes. A delay that the bucket has no room for is left out, as a whole: the call is counted and
//! not delayed. So in any stretch of time, the delays of a thread take at most the share of the stretch, plus
//! the share of one window. No delay is longer than the share of a window.
//!
//! The helper and the BPF programs have buckets of their own: if both delay a thread, in Python functions and
//! in native ones, it may get twice as much.
//!
//! A bucket counts delays as they are asked for: the thread's own time. A thread that is kept from running in
//! a delay loses more, as it does anywhere else.

/// How much of a thread's time may be delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bound {
    /// Parts of the time, of [`Bound::ONE`]; 0: there is no bound.
    pub share: u64,
    /// What a bucket holds: the share of a window, in ns; in the helper's block in units of its clock.
    pub room: u64,
}

/// The delays of one thread that have not leaked yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bucket {
    /// What is in it, in the unit of [`Bound::room`].
    pub level: u64,
    /// When the last delay was added, on the clock of that unit.
    pub at: u64,
}

impl Bound {
    /// A share of 1.
    pub const ONE: u64 = 1 << 20;
    /// No bound.
    pub const NONE: Self = Self { share: 0, room: 0 };
    /// The longest time that leaks at once: 2.4 hours in ns, so that its product with a share fits.
    const LONGEST: u64 = 1 << 43;

    /// The bound for this share of the time, in parts, within windows of this length. A larger share counts
    /// as [`Bound::ONE`].
    pub const fn new(share: u64, window: u64) -> Self {
        let share = if share > Self::ONE { Self::ONE } else { share };
        let window = if window > Self::LONGEST { Self::LONGEST } else { window };
        Self { share, room: window * share / Self::ONE }
    }

    /// Whether there is a bound.
    #[inline(always)]
    pub const fn is_set(self) -> bool {
        self.share != 0
    }

    /// What is left in a bucket. A clock that was set back lets nothing leak until it has caught up.
    #[inline(always)]
    pub const fn left_in(self, bucket: Bucket, now: u64) -> u64 {
        if now <= bucket.at {
            return bucket.level;
        }
        let passed = now - bucket.at;
        let passed = if passed > Self::LONGEST { Self::LONGEST } else { passed };
        let share = if self.share > Self::ONE { Self::ONE } else { self.share };
        bucket.level.saturating_sub(passed * share / Self::ONE)
    }

    /// The bucket after a delay of this length that begins now. `None`: it has no room, and the call is not
    /// to be delayed. The bucket stays as it was then.
    #[inline(always)]
    pub const fn add(self, bucket: Bucket, delay: u64, now: u64) -> Option<Bucket> {
        let left = self.left_in(bucket, now);
        if left > self.room || delay > self.room - left {
            return None;
        }
        Some(Bucket { level: left + delay, at: now })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    extern crate std;

    use std::{vec, vec::Vec};

    use proptest::prelude::*;

    use super::*;

    const FIFTH: u64 = Bound::ONE / 5;

    /// The delayed ones of these calls: when each begins, and its delay. A call is how long it begins after
    /// the one before it has ended, and its delay.
    fn delayed(bound: Bound, calls: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (mut bucket, mut now, mut all) = (Bucket::default(), 1_000_000, vec![]);
        for (gap, delay) in calls {
            now += gap;
            if let Some(next) = bound.add(bucket, *delay, now) {
                bucket = next;
                all.push((now, *delay));
                now += delay;
            }
        }
        all
    }

    /// How much of these delays lies in a stretch of time.
    fn within(delays: &[(u64, u64)], (from, to): (u64, u64)) -> u64 {
        let part = |(at, delay): &(u64, u64)| (at + delay).min(to).saturating_sub((*at).max(from));
        delays.iter().map(part).sum()
    }

    #[test]
    fn a_thread_that_is_called_all_the_time_is_delayed_for_its_share() {
        let bound = Bound::new(FIFTH, 100_000_000);
        let calls = vec![(1_000_000, 10_000_000); 2_000];
        let delays = delayed(bound, &calls);
        let &(end, last) = delays.last().unwrap();
        let all = within(&delays, (0, end + last));
        let share = all as f64 / (end + last) as f64;
        assert!((0.19..0.21).contains(&share), "{share}");
    }

    #[test]
    fn a_delay_that_is_longer_than_the_share_of_a_window_is_never_made() {
        let bound = Bound::new(FIFTH, 100_000_000);
        assert_eq!(bound.room, 100_000_000 * FIFTH / Bound::ONE);
        assert_eq!(delayed(bound, &[(u64::MAX / 2, bound.room + 1)]), []);
        assert_eq!(delayed(bound, &[(7, bound.room)]).len(), 1);
    }

    #[test]
    fn any_numbers_are_a_bound() {
        for bound in [Bound { share: u64::MAX, room: u64::MAX }, Bound::new(u64::MAX, u64::MAX)] {
            let full = Bucket { level: u64::MAX, at: 0 };
            assert!(bound.left_in(full, u64::MAX) >= u64::MAX - Bound::LONGEST);
            assert_eq!(bound.add(full, 1, 0), None, "nothing overflows");
        }
        assert!(!Bound::NONE.is_set() && !Bound::new(0, 100).is_set() && Bound::new(1, 0).is_set());
        assert_eq!(Bound::new(1, 0).add(Bucket::default(), 1, 5), None);
    }

    #[test]
    fn a_clock_that_was_set_back_lets_nothing_leak() {
        let bound = Bound::new(Bound::ONE, 100);
        assert_eq!(bound.add(Bucket { level: 60, at: 1_000 }, 50, 10), None);
        assert_eq!(
            bound.add(Bucket { level: 60, at: 1_000 }, 50, 1_010),
            Some(Bucket { level: 100, at: 1_010 })
        );
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_has_more_than_its_share_and_that_of_one_window(
            share in 1..=Bound::ONE,
            window in 0_u64..1_000_000,
            calls in prop::collection::vec((0_u64..100_000, 1_u64..200_000), 1..200),
        ) {
            let bound = Bound::new(share, window);
            let delays = delayed(bound, &calls);
            let edges: Vec<u64> = delays.iter().flat_map(|(at, delay)| [*at, at + delay]).collect();
            for (number, from) in edges.iter().enumerate() {
                for to in &edges[number..] {
                    let stretch = u128::from(to - from) + u128::from(window);
                    let most = stretch * u128::from(share) / u128::from(Bound::ONE);
                    prop_assert!(u128::from(within(&delays, (*from, *to))) <= most + 1);
                }
            }
        }

        #[test]
        fn a_call_that_is_not_delayed_changes_nothing(
            share in 0..=Bound::ONE * 2, room in any::<u64>(), level in any::<u64>(), at in any::<u64>(),
            delay in any::<u64>(), now in any::<u64>(),
        ) {
            let (bound, bucket) = (Bound { share, room }, Bucket { level, at });
            let left = bound.left_in(bucket, now);
            prop_assert!(left <= level);
            let fits = left.checked_add(delay).is_some_and(|sum| sum <= room);
            let next = fits.then(|| Bucket { level: left + delay, at: now });
            prop_assert_eq!(bound.add(bucket, delay, now), next);
        }
    }
}
