//! Delayed calls that find the caches cold, as after their thread slept.
//!
//! All that such a call touches comes from memory, and a line that waits for the one before takes the longer.
//! What the helper takes from its first reading of the counter on is part of the delay. What Python takes
//! before it and after it is not, and nothing can be done there. So where a call comes long after the last
//! delay, two things are done. What the helper is going to touch is fetched at once, as soon as it hears of
//! the call. And the delay is shortened by what Python is likely to have lost, told by what the helper lost
//! itself.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{arch, block, delay, judge::Judge, life, python::api::Api, stub};

/// Bytes of a cache line.
const LINE: usize = 64;
/// So long after a delay the caches may be cold, in ns.
const COOL_NS: u64 = 20_000;
/// What the helper takes at most where they are warm, in ns.
const WARM_NS: u64 = 100;
/// Whatever took the caches meanwhile needed time for it: a delay is shortened by one part of that time in so
/// many at most. An interrupt of some microseconds looks like cold caches, and comes as well after a short
/// time as after a long one.
const GAP_PARTS: u64 = 128;
/// A delay is shortened by so much at most, in ns.
const MOST_NS: u64 = 5_000;

/// What is known from the last delay.
#[repr(C, align(64))]
struct Last {
    /// When it ended, in ticks of the counter.
    ended: AtomicU64,
    /// [`COOL_NS`], [`WARM_NS`] and [`MOST_NS`] in ticks.
    cool: AtomicU64,
    warm: AtomicU64,
    most: AtomicU64,
    /// A [`Way`]'s share.
    share: AtomicU64,
    /// The function, and its policy.
    function: AtomicU32,
    policy: AtomicU32,
}

static LAST: Last = Last {
    ended: AtomicU64::new(0),
    // Nothing is known of the counter: nothing is made up for.
    cool: AtomicU64::new(u64::MAX),
    warm: AtomicU64::new(0),
    most: AtomicU64::new(0),
    share: AtomicU64::new(0),
    function: AtomicU32::new(0),
    policy: AtomicU32::new(0),
};

/// How Python tells the helper of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By `sys.monitoring`.
    Monitoring,
    /// By the frame evaluation hook.
    Hook,
}

impl Way {
    /// What Python loses to cold caches for what the helper loses, in parts of 16: measured, after 5 ms of
    /// sleep. There is next to nothing between Python and the hook.
    const fn share(self) -> u64 {
        match self {
            Self::Monitoring => 32,
            Self::Hook => 0,
        }
    }
}

/// A session begins, where the helper reads the counter; `units` converts ns to its ticks.
pub(crate) fn begin(way: Way, units: impl Fn(u64) -> u64) {
    LAST.share.store(way.share(), Ordering::Relaxed);
    LAST.warm.store(units(WARM_NS), Ordering::Relaxed);
    LAST.most.store(units(MOST_NS), Ordering::Relaxed);
    LAST.cool.store(units(COOL_NS), Ordering::Relaxed);
}

/// The helper does not read the counter.
pub(crate) fn off() {
    LAST.cool.store(u64::MAX, Ordering::Relaxed);
}

/// A call of another function than the last is delayed, or of the same; `ended`: when that is over.
#[inline]
pub(crate) fn ended(ended: u64, function: u32, policy: u32) {
    LAST.ended.store(ended, Ordering::Relaxed);
    LAST.function.store(function, Ordering::Relaxed);
    LAST.policy.store(policy, Ordering::Relaxed);
}

/// A call began that is likely to be delayed, and `code` is what hears of it.
#[inline]
pub(crate) fn begins(began: u64, code: *const u8) {
    if is_likely(began) {
        fetch(code);
    }
}

#[inline]
fn is_likely(began: u64) -> bool {
    began.wrapping_sub(LAST.ended.load(Ordering::Relaxed)) > LAST.cool.load(Ordering::Relaxed)
}

/// What is lost outside of the helper more than in a call that finds the caches warm, in ticks. At the end of
/// what the helper does before it spins.
#[inline]
pub(crate) fn lost(began: u64) -> u64 {
    if is_likely(began) { LAST.lost(began, arch::ticks()) } else { 0 }
}

impl Last {
    fn lost(&self, began: u64, ready: u64) -> u64 {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let gap = began.saturating_sub(read(&self.ended));
        let more = ready.saturating_sub(began).saturating_sub(read(&self.warm));
        (more.saturating_mul(read(&self.share)) / 16).min(gap / GAP_PARTS).min(read(&self.most))
    }
}

/// Has all fetched that the helper is going to touch if the call is of the same function as the last.
#[cold]
#[inline(never)]
fn fetch(code: *const u8) {
    lines(code, 10);
    life::fetch();
    block::fetch(LAST.function.load(Ordering::Relaxed), LAST.policy.load(Ordering::Relaxed));
    Judge::fetch();
    Api::fetch();
    lines(stub::code(), 16);
    lines(delay::code(), 16);
}

/// Has so many cache lines fetched. Addresses where nothing is are no fault.
#[inline(never)]
pub(crate) fn lines(start: *const u8, count: usize) {
    for line in 0..count {
        arch::prefetch(start.wrapping_add(line * LINE));
    }
}

/// Has the cache lines fetched in which a value lies.
#[inline]
pub(crate) fn value<T>(value: *const T) {
    lines(value.cast(), size_of::<T>() / LINE + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_told_by_the_helper_and_bounded() {
        let last = Last {
            ended: AtomicU64::new(1_000),
            cool: AtomicU64::new(20_000),
            warm: AtomicU64::new(100),
            most: AtomicU64::new(4_000),
            share: AtomicU64::new(Way::Monitoring.share()),
            function: AtomicU32::new(0),
            policy: AtomicU32::new(0),
        };
        let lost = |gap: u64, took: u64| last.lost(1_000 + gap, 1_000 + gap + took);
        assert_eq!(lost(5_000_000, 80), 0, "the caches were warm");
        assert_eq!(lost(5_000_000, 1_100), 2_000);
        assert_eq!(lost(5_000_000, 1_000_000), 4_000, "something else ran in between");
        assert_eq!(lost(25_600, 1_100), 200, "there was no time to take the caches");
        assert_eq!(last.lost(900, 5_000), 0, "the counter was set back");
        last.share.store(Way::Hook.share(), Ordering::Relaxed);
        assert_eq!(lost(5_000_000, 1_100), 0);
    }
}
