//! How long calls were delayed, as a histogram for each function: from it come the median and the share of
//! interrupted spins.
//!
//! A delay is counted by how much it exceeded its request, as a part of the request. So the buckets are
//! finest where delays are as they should be; they fit delays of 100 ns and of 10 s alike; and histograms of
//! several processors, functions and doses add up. The buckets are linear up to a sixteenth of the request,
//! and then log-linear, sixteen to a doubling: a median up to twice the request is right within 1.6 %, up to
//! one and a half times within 1 %, and up to 33 times within 3.2 %. Beyond come buckets of a doubling each.

/// The counts of a function's delays, as words; in BPF, of its delays on one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Histogram {
    /// The constants below are the positions in it.
    pub words: [u64; Self::WORDS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { words: [0; Self::WORDS] }
    }
}

impl Histogram {
    /// Position: delays that [were interrupted](Self::interrupted_above_ns) when they were over.
    pub const INTERRUPTED: usize = 0;
    /// Position: how many of those waited for the interpreter's lock, which they had given up.
    pub const LOCKED_OUT: usize = 1;
    /// Position: delays that ended early, with their session.
    pub const SHORT: usize = 2;
    /// Position of the first bucket.
    pub const FIRST: usize = 3;
    /// Number of buckets.
    pub const BUCKETS: usize = Self::PLACES + Self::FINE * Self::PLACES + Self::COARSE;
    /// The number of words.
    pub const WORDS: usize = Self::FIRST + Self::BUCKETS;

    /// The number of parts of a request.
    pub const PARTS: u64 = 256;
    /// Buckets of a doubling, and of the linear part before the first.
    const PLACES: usize = 16;
    const PLACES_BITS: u32 = 4;
    /// The number of doublings that have [`Self::PLACES`] buckets each.
    const FINE: usize = 9;
    /// The number of doublings that have one bucket each. The last bucket has no end.
    const COARSE: usize = 13;

    /// Where a delay is counted: a position among the words. Both times are in the same unit.
    #[inline(always)]
    pub const fn position(delivered: u64, requested: u64) -> usize {
        if delivered < requested {
            return Self::SHORT;
        }
        Self::FIRST + Self::bucket(delivered - requested, requested)
    }

    /// The bucket of a delay that was too long by this much.
    #[inline(always)]
    pub const fn bucket(excess: u64, requested: u64) -> usize {
        const MAX: u64 = u64::MAX / Histogram::PARTS;
        let excess = if excess < MAX { excess } else { MAX };
        let requested = if requested == 0 { 1 } else { requested };
        let parts = excess * Self::PARTS / requested;
        if parts < Self::PLACES as u64 {
            return parts as usize;
        }
        let doubling = (u64::BITS - 1 - Self::PLACES_BITS - parts.leading_zeros()) as usize;
        if doubling < Self::FINE {
            let place = (parts >> doubling) as usize % Self::PLACES;
            return Self::PLACES + doubling * Self::PLACES + place;
        }
        let coarse = Self::PLACES + Self::FINE * Self::PLACES + (doubling - Self::FINE);
        if coarse < Self::BUCKETS { coarse } else { Self::BUCKETS - 1 }
    }

    /// The bounds of a bucket, in parts of the request: the first that is in it, and the first that is not.
    /// Nothing is beyond the last.
    pub const fn bounds(bucket: usize) -> (u64, u64) {
        if bucket < Self::PLACES {
            return (bucket as u64, bucket as u64 + 1);
        }
        let beyond = bucket - Self::PLACES;
        let (doubling, place, width) = if beyond < Self::FINE * Self::PLACES {
            let doubling = beyond / Self::PLACES;
            (doubling, beyond % Self::PLACES, 1 << doubling)
        } else {
            let doubling = beyond - Self::FINE * Self::PLACES + Self::FINE;
            (doubling, 0, (Self::PLACES as u64) << doubling)
        };
        let from = ((Self::PLACES + place) as u64) << doubling;
        (from, if bucket + 1 < Self::BUCKETS { from + width } else { u64::MAX })
    }

    /// A spin that ends later than it should, by this much or more, was interrupted. In ns.
    ///
    /// A spin reads its clock every few ns, and so ends at once when it is over. What makes it end later has
    /// kept the thread from running at that very moment: another thread, the hypervisor, a stopped group. A
    /// timer's interrupt alone takes 1 to 5 us, and a reading of the slowest clock as long.
    #[inline(always)]
    pub const fn interrupted_above_ns(delay_ns: u64) -> u64 {
        const MIN_NS: u64 = 10_000;
        let part = delay_ns / 20;
        if part > MIN_NS { part } else { MIN_NS }
    }
}

impl Histogram {
    /// What was counted since an earlier reading of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (word, earlier) in since.words.iter_mut().zip(&earlier.words) {
            *word = word.saturating_sub(*earlier);
        }
        since
    }
}

impl core::ops::AddAssign for Histogram {
    fn add_assign(&mut self, other: Self) {
        // The process can write to the memory of the helper's counts, so they may be any numbers.
        for (word, other) in self.words.iter_mut().zip(other.words) {
            *word = word.saturating_add(other);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    /// Requests of all magnitudes.
    const REQUESTED: [u64; 9] = [1, 40, 100, 999, 1_000, 12_345, 1_000_000, 999_999_937, 10_000_000_000];

    /// Times from 0 to beyond 10 s: each of the first, and some of each magnitude.
    fn times() -> impl Iterator<Item = u64> {
        let doublings = (0..45).flat_map(|doubling| {
            let step = (1_u64 << doubling) / 97 + 1;
            (0..97).map(move |number| (1 << doubling) + number * step)
        });
        (0..5_000).chain(doublings).chain([10_000_000_000, u64::MAX - 1, u64::MAX])
    }

    #[test]
    fn every_time_is_in_the_bucket_whose_bounds_it_has() {
        for requested in REQUESTED {
            for excess in times() {
                let bucket = Histogram::bucket(excess, requested);
                assert!(bucket < Histogram::BUCKETS, "{excess} {requested}");
                let (from, to) = Histogram::bounds(bucket);
                let parts = excess.min(u64::MAX / Histogram::PARTS) * Histogram::PARTS / requested;
                assert!(from <= parts && parts < to, "{excess} of {requested}: {parts} in {from}..{to}");
                let position = Histogram::position(requested.saturating_add(excess), requested);
                assert!((Histogram::FIRST..Histogram::WORDS).contains(&position));
            }
        }
    }

    #[test]
    fn longer_delays_are_never_in_earlier_buckets() {
        for requested in REQUESTED {
            let mut sorted: std::vec::Vec<u64> = times().collect();
            sorted.sort_unstable();
            let buckets = sorted.into_iter().map(|excess| Histogram::bucket(excess, requested));
            assert!(buckets.is_sorted(), "{requested}");
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        assert_eq!(Histogram::bounds(0).0, 0);
        for bucket in 1..Histogram::BUCKETS {
            assert_eq!(Histogram::bounds(bucket - 1).1, Histogram::bounds(bucket).0, "{bucket}");
        }
        assert_eq!(Histogram::bounds(Histogram::BUCKETS - 1).1, u64::MAX);
    }

    #[test]
    fn the_middle_of_a_bucket_is_near_everything_in_it() {
        // A delivered delay is the request, of 256 parts, and the excess, which the bounds give.
        let widest = |from_times: u64, to_times: u64| {
            let range = (from_times * 64 - 256)..(to_times * 64 - 256);
            let bounds = (0..Histogram::BUCKETS).map(Histogram::bounds);
            let inside = bounds.filter(|(from, _)| range.contains(from));
            inside.map(|(from, to)| (to - from) * 500 * 10 / (256 + from)).max().unwrap_or(u64::MAX)
        };
        // The arguments are quarters of a request; the result is half of a bucket, in 1/10,000 of the delay.
        assert!(widest(4, 5) <= 64, "{}", widest(4, 5));
        assert!(widest(4, 6) <= 104, "{}", widest(4, 6));
        assert!(widest(6, 8) <= 156, "{}", widest(6, 8));
        assert!(widest(8, 33 * 4) <= 313, "{}", widest(8, 33 * 4));
    }

    #[test]
    fn what_ended_early_is_counted_apart() {
        assert_eq!(Histogram::position(9, 10), Histogram::SHORT);
        assert_eq!(Histogram::position(10, 10), Histogram::FIRST);
        assert_eq!(Histogram::position(0, 0), Histogram::FIRST);
        assert_eq!(Histogram::position(u64::MAX, 0), Histogram::WORDS - 1);
    }

    #[test]
    fn histograms_add_up_and_tell_what_came_since() {
        let mut sum = Histogram::default();
        let mut one = Histogram::default();
        one.words[Histogram::FIRST] = 3;
        one.words[Histogram::INTERRUPTED] = u64::MAX;
        sum += one;
        sum += one;
        assert_eq!((sum.words[Histogram::FIRST], sum.words[Histogram::INTERRUPTED]), (6, u64::MAX));
        assert_eq!(sum.since(&one).words[Histogram::FIRST], 3);
        assert_eq!(one.since(&sum), Histogram::default());
    }

    #[test]
    fn a_spin_is_interrupted_above_10_us_and_a_twentieth() {
        for (delay_ns, above_ns) in [(0, 10_000), (1_000, 10_000), (200_000, 10_000), (1_000_000, 50_000)] {
            assert_eq!(Histogram::interrupted_above_ns(delay_ns), above_ns);
        }
    }
}
