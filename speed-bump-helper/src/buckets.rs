//! The bound on what a thread is delayed: the buckets of threads, and whether one has room for a delay.
//!
//! Threads are told apart by their thread pointer. The table has a fixed size; a bucket that has leaked empty
//! says nothing of its thread, so another thread may have its slot. A thread that finds no slot is not
//! delayed.
//!
//! Without an interpreter's lock several threads use the table at the same time, so a slot is locked while it
//! is read and changed. That takes some nanoseconds, and nobody sleeps there. A child that was forked in that
//! moment by C code keeps the lock, and does not delay the thread that has the slot.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use speed_bump_abi::{Bound, Bucket};

use crate::arch;

/// The most threads with delays that have not leaked yet. In rare cases there is room for fewer: a thread has
/// room only in two groups, which may fill up earlier.
const SLOTS: usize = 1024;
/// Slots of a group.
const GROUP: usize = 8;
const GROUPS: usize = SLOTS / GROUP;
/// Two odd numbers that hash a thread to its two groups.
const FACTORS: [usize; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];
/// A bit in a slot's key: the slot is locked. Thread pointers are even.
const LOCKED: usize = 1;
/// How often a thread tries to lock its own slot.
const TRIES: u32 = 64;

/// A thread and its bucket.
struct Slot {
    /// The thread pointer, and [`LOCKED`]. 0: free.
    key: AtomicUsize,
    level: AtomicU64,
    at: AtomicU64,
}

/// Buckets of threads.
struct Buckets([Slot; SLOTS]);

static BUCKETS: Buckets = Buckets::empty();
/// Whether any thread has a bucket.
static ARE_USED: AtomicBool = AtomicBool::new(false);

/// Starts a session: all buckets are empty.
pub(crate) fn begin() {
    if ARE_USED.swap(false, Ordering::AcqRel) {
        BUCKETS.clear();
    }
}

/// Whether the running thread may have a delay of this length now, within the bound. If it may, this adds the
/// delay to the thread's bucket. All times are in units of the block's clock.
#[inline(never)]
pub(crate) fn have_room(bound: Bound, delay: u64, now: u64) -> bool {
    ARE_USED.store(true, Ordering::Relaxed);
    BUCKETS.have_room(arch::thread_pointer(), bound, delay, now)
}

impl Buckets {
    const fn empty() -> Self {
        Self([const { Slot::free() }; SLOTS])
    }

    fn clear(&self) {
        for slot in &self.0 {
            slot.put(Bucket::default());
            slot.key.store(0, Ordering::Release);
        }
    }

    fn groups(&self, thread: usize) -> impl Iterator<Item = &Slot> + Clone {
        FACTORS.into_iter().flat_map(move |factor| {
            let group = (thread.wrapping_mul(factor) >> 32) % GROUPS;
            self.0.get(group * GROUP..(group + 1) * GROUP).unwrap_or_default()
        })
    }

    fn have_room(&self, thread: usize, bound: Bound, delay: u64, now: u64) -> bool {
        let slots = self.groups(thread);
        // No other thread gives this one a slot. But another thread may take its slot until this thread has
        // locked the slot.
        for _ in 0..TRIES {
            let Some(own) = slots.clone().find(|slot| slot.key.load(Ordering::Relaxed) & !LOCKED == thread)
            else {
                return slots.clone().any(|slot| slot.is_given_to(thread, bound, now, delay));
            };
            if own.lock(thread) {
                return own.add(thread, bound, delay, now);
            }
        }
        false
    }
}

impl Slot {
    const fn free() -> Self {
        Self { key: AtomicUsize::new(0), level: AtomicU64::new(0), at: AtomicU64::new(0) }
    }

    fn lock(&self, key: usize) -> bool {
        let locked = key | LOCKED;
        key & LOCKED == 0
            && self.key.compare_exchange(key, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives a slot that is free, or whose bucket has leaked empty, to a thread with this delay.
    fn is_given_to(&self, thread: usize, bound: Bound, now: u64, delay: u64) -> bool {
        let key = self.key.load(Ordering::Relaxed);
        if bound.left_in(self.bucket(), now) != 0 || !self.lock(key) {
            return false;
        }
        // The thread of the slot may have used the bucket in the meantime.
        if bound.left_in(self.bucket(), now) != 0 {
            self.key.store(key, Ordering::Release);
            return false;
        }
        self.put(Bucket { level: 0, at: now });
        self.add(thread, bound, delay, now)
    }

    /// Adds a delay to the locked slot, if there is room, and gives the slot to this thread, unlocked.
    fn add(&self, thread: usize, bound: Bound, delay: u64, now: u64) -> bool {
        let next = bound.add(self.bucket(), delay, now);
        if let Some(next) = next {
            self.put(next);
        }
        self.key.store(thread, Ordering::Release);
        next.is_some()
    }

    fn bucket(&self) -> Bucket {
        Bucket { level: self.level.load(Ordering::Relaxed), at: self.at.load(Ordering::Relaxed) }
    }

    fn put(&self, Bucket { level, at }: Bucket) {
        self.level.store(level, Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, vec::Vec};

    use super::*;

    const FIFTH: Bound = Bound::new(Bound::ONE / 5, 1_000_000);

    fn thread_pointer(number: usize) -> usize {
        0x7f00_0000_0000 + number * 0x1000
    }

    #[test]
    fn each_thread_has_a_bucket_of_its_own() {
        let buckets = Buckets::empty();
        let have_room = |thread, delay, now| buckets.have_room(thread_pointer(thread), FIFTH, delay, now);
        for thread in 0..100 {
            assert!(have_room(thread, FIFTH.room, 10), "{thread}");
            assert!(!have_room(thread, 1_000, 11), "{thread}");
        }
        assert!(have_room(7, 1_000, 10_011), "some has leaked");
    }

    #[test]
    fn a_full_table_delays_no_further_thread_until_buckets_are_empty() {
        let buckets = Buckets::empty();
        let have_room = |thread, now| buckets.have_room(thread_pointer(thread), FIFTH, FIFTH.room, now);
        let delayed: Vec<usize> = (0..5_000).filter(|thread| have_room(*thread, 0)).collect();
        assert!((SLOTS / 2..=SLOTS).contains(&delayed.len()), "{}", delayed.len());
        assert!(delayed.iter().all(|thread| !have_room(*thread, 500_000)), "no one lost a bucket");
        assert!(have_room(6_000, 1_000_100), "all have leaked");
        buckets.clear();
        assert!((7_000..7_100).all(|thread| have_room(thread, 0)));
    }

    /// Many threads share two groups, so that a thread takes slots of others whose buckets have leaked empty.
    #[test]
    fn threads_at_the_same_time_get_no_more_than_their_shares() {
        const THREADS: usize = 4;
        let groups = |pointer: usize| FACTORS.map(|factor| (pointer.wrapping_mul(factor) >> 32) % GROUPS);
        let first = thread_pointer(1);
        let alike = (1..).map(thread_pointer).filter(|of| groups(*of) == groups(first));
        let pointers: Vec<usize> = alike.take(6 * THREADS).collect();
        assert!(pointers.len() > 2 * GROUP);
        let (buckets, clock) = (&Buckets::empty(), &AtomicU64::new(0));
        let taken: u64 = thread::scope(|scope| {
            let run = |own: &[usize]| {
                let mut taken = std::vec![0_u64; own.len()];
                for turn in 0..20_000 {
                    let of = turn % own.len();
                    let now = clock.fetch_add(2_000, Ordering::Relaxed);
                    if buckets.have_room(own[of], FIFTH, 5_000, now) {
                        taken[of] += 5_000;
                    }
                    assert!(taken[of] <= FIFTH.room + now / 5 + 1, "{} until {now}", taken[of]);
                }
                taken.iter().sum::<u64>()
            };
            let own: Vec<Vec<usize>> = pointers.chunks(6).map(<[usize]>::to_vec).collect();
            let started: Vec<_> = own.into_iter().map(|own| scope.spawn(move || run(&own))).collect();
            started.into_iter().filter_map(|of| of.join().ok()).sum()
        });
        assert!(taken > 0);
    }
}
