//! Corrects delays for calls with cold caches, such as those after a thread slept.
//!
//! Such a call reads all that it touches from memory, which takes microseconds. The time from the helper's
//! first reading of the counter on is part of the delay. The time that Python takes before and after is not,
//! and the helper cannot see that time. But the same cold caches slow the helper down, so the delay is
//! shortened in proportion to the time that the helper itself needed until it was ready to spin. Where caches
//! are sometimes more and sometimes less cold, the two times correlate (up to 0.9).
//!
//! We tried to prefetch all the helper's cache lines at the start of the call: the helper was ready a quarter
//! earlier, and the time outside it grew by as much.

use core::sync::atomic::{AtomicU64, Ordering};

use speed_bump_abi::control_block::Clock;

use crate::{arch, block::Block};

/// How Python reports calls to the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportedBy {
    /// By `sys.monitoring`.
    Monitoring,
    /// By the frame evaluation hook. There is so little code between Python and the hook that we measured no
    /// loss.
    Hook,
}

/// Caches may be cold this long after a delay, in ns.
const COOL_NS: u64 = 20_000;
/// The most time that the helper needs until it is ready to spin with warm caches, in ns.
const WARM_NS: u64 = 100;
/// The time that Python loses for each ns that the helper loses, as a fraction. Measured after 5 ms of sleep,
/// medians of 80 to 150 calls: 1.1 to 1.8 on 3.14, 1.4 to 1.6 on 3.15; on builds without optimisation 1.3 to
/// 2.0 on 3.12 and 1.8 to 2.2 on 3.13.
const SHARE: (u64, u64) = (3, 2);
/// The most by which a delay is shortened, in ns: the smallest loss that was measured with the coldest
/// caches.
const MAX_NS: u64 = 4_500;
/// Evicting caches takes time: a delay is shortened at most by this fraction of the time since the last
/// delay. An interrupt of some microseconds looks like cold caches, but leaves most of them warm.
const GAP_PARTS: u64 = 128;

/// What we know before a call, in ticks of the counter. They lie in one cache line, since they may be cold
/// themselves.
#[repr(C, align(64))]
struct Caches {
    /// When the last delay of any thread ended.
    ended: AtomicU64,
    /// [`COOL_NS`], [`WARM_NS`] and [`MAX_NS`].
    cool: AtomicU64,
    warm: AtomicU64,
    most: AtomicU64,
}

static CACHES: Caches = Caches::unknown();

/// Prepares for a session in which Python reports calls in this way.
pub(crate) fn begin(reported_by: ReportedBy) {
    let delays = Block::current().and_then(Block::delays);
    match delays.filter(|delays| delays.clock() == Clock::Counter && reported_by == ReportedBy::Monitoring) {
        Some(delays) => CACHES.know(|ns| delays.units(ns)),
        None => CACHES.cool.store(u64::MAX, Ordering::Relaxed),
    }
}

/// A delay has ended at this tick.
#[inline]
pub(crate) fn ended(ended: u64) {
    CACHES.ended.store(ended, Ordering::Relaxed);
}

/// The time that the call loses outside the helper because of cold caches, in ticks. Must be called when the
/// helper is ready to spin.
#[inline]
pub(crate) fn lost(began: u64) -> u64 {
    if CACHES.may_be_cold(began) { CACHES.lost(began, arch::ticks()) } else { 0 }
}

impl Caches {
    /// The counter is unknown: no correction.
    const fn unknown() -> Self {
        Self {
            ended: AtomicU64::new(0),
            cool: AtomicU64::new(u64::MAX),
            warm: AtomicU64::new(0),
            most: AtomicU64::new(0),
        }
    }

    fn know(&self, units: impl Fn(u64) -> u64) {
        self.warm.store(units(WARM_NS), Ordering::Relaxed);
        self.most.store(units(MAX_NS), Ordering::Relaxed);
        self.cool.store(units(COOL_NS), Ordering::Relaxed);
    }

    #[inline]
    fn gap(&self, began: u64) -> u64 {
        began.saturating_sub(self.ended.load(Ordering::Relaxed))
    }

    #[inline]
    fn may_be_cold(&self, began: u64) -> bool {
        self.gap(began) > self.cool.load(Ordering::Relaxed)
    }

    fn lost(&self, began: u64, ready: u64) -> u64 {
        let longer = ready.saturating_sub(began).saturating_sub(self.warm.load(Ordering::Relaxed));
        let share = longer.saturating_mul(SHARE.0) / SHARE.1;
        share.min(self.gap(began) / GAP_PARTS).min(self.most.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For a counter in ns, after a delay that ended at 1,000.
    fn caches() -> Caches {
        let caches = Caches::unknown();
        caches.know(|ns| ns);
        caches.ended.store(1_000, Ordering::Relaxed);
        caches
    }

    #[test]
    fn what_is_lost_is_told_by_what_the_helper_took() {
        let lost = |gap: u64, took: u64| caches().lost(1_000 + gap, 1_000 + gap + took);
        assert_eq!(lost(5_000_000, 80), 0, "the caches were warm");
        assert_eq!(lost(5_000_000, 1_100), 1_500);
    }

    #[test]
    fn it_is_bounded_where_something_else_ran() {
        let lost = |gap: u64, took: u64| caches().lost(1_000 + gap, 1_000 + gap + took);
        assert_eq!(lost(5_000_000, 1_000_000), 4_500);
        assert_eq!(lost(25_600, 3_000), 200, "there was no time to take the caches");
        assert_eq!(caches().lost(900, 5_000), 0, "the counter was set back");
        assert_eq!(caches().lost(5_000_000, 4_000_000), 0, "the same in between");
    }

    #[test]
    fn calls_one_after_the_other_find_the_caches_warm() {
        assert!(!caches().may_be_cold(1_000 + COOL_NS));
        assert!(caches().may_be_cold(1_001 + COOL_NS));
        assert!(!Caches::unknown().may_be_cold(u64::MAX), "without a counter nothing is known");
    }
}
