//! Who calls whom: the table in which the helper adds up the calls of each pair of functions.
//!
//! Rows are found by open addressing: the key of a pair says at which row to begin. From there on, the pair
//! has the first of [`LOOKS`] rows that is its own or free.

use core::sync::atomic::{AtomicU64, Ordering};

/// The target of a function that no target selects, but that calls a selected one. It is in the table of
/// functions only for its name.
pub const NO_TARGET: u32 = u32::MAX;

/// How many rows we check for a pair. If all of them are other pairs', there is no room for it.
pub const LOOKS: usize = 32;

/// The calls of one function by another one, and their times in units of the block's
/// [`Clock`](crate::control_block::Clock). The helper writes them when calls end. The sums wrap around.
///
/// The caller is the function of the calling frame, whether a target selects it or not ([`NO_TARGET`]). A
/// call is *recursive* where another one of the same pair is in progress on the thread.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct CallerRow {
    /// The [`key`] of the pair; 0: the row is free.
    pub key: AtomicU64,
    /// Calls that have ended, or were suspended.
    pub calls: AtomicU64,
    /// The recursive ones of them.
    pub recursive: AtomicU64,
    /// As [`TimeRow::own`](crate::times::TimeRow::own), of these calls.
    pub own: AtomicU64,
    /// As [`TimeRow::cumulative`](crate::times::TimeRow::cumulative), of these calls.
    pub cumulative: AtomicU64,
}

impl CallerRow {
    /// A free row.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const NEW: Self = Self {
        key: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        recursive: AtomicU64::new(0),
        own: AtomicU64::new(0),
        cumulative: AtomicU64::new(0),
    };
}

/// The key of a pair, from the numbers that the functions have in the block, which are below `u32::MAX`.
/// Never 0.
#[inline]
pub const fn key(caller: u32, callee: u32) -> u64 {
    ((caller as u64).wrapping_add(1) << 32) | callee as u64
}

/// The caller and the callee of a key; `None` if it is not a key.
#[inline]
pub const fn pair(key: u64) -> Option<(u32, u32)> {
    match ((key >> 32) as u32).checked_sub(1) {
        Some(caller) => Some((caller, key as u32)),
        None => None,
    }
}

/// The number of a pair's row. A pair without a row gets one. `None`: there is no room. The length of the
/// table is a power of two.
#[inline]
pub fn row_of(rows: &[CallerRow], caller: u32, callee: u32) -> Option<usize> {
    let key = key(caller, callee);
    for (number, row) in places(rows, key) {
        let mut theirs = row.key.load(Ordering::Acquire);
        if theirs == 0 {
            // Another thread or process may come first.
            let claimed = row.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
            theirs = claimed.map_or_else(|theirs| theirs, |_| key);
        }
        if theirs == key {
            return Some(number);
        }
    }
    None
}

/// Whether a pair has a row.
#[inline]
pub fn has_row(rows: &[CallerRow], caller: u32, callee: u32) -> bool {
    let key = key(caller, callee);
    let mut seen = places(rows, key).map(|(_, row)| row.key.load(Ordering::Acquire));
    seen.find(|theirs| *theirs == 0 || *theirs == key) == Some(key)
}

/// The rows that we check for a key, with their numbers.
#[inline]
fn places(rows: &[CallerRow], key: u64) -> impl Iterator<Item = (usize, &CallerRow)> {
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    let last = rows.len().wrapping_sub(1);
    (0..LOOKS).filter_map(move |look| {
        let number = first.wrapping_add(look) & last;
        Some((number, rows.get(number)?))
    })
}

/// The calls of one function by another one, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairTimes {
    /// As [`CallerRow::calls`].
    pub calls: u64,
    /// As [`CallerRow::recursive`].
    pub recursive: u64,
    /// As [`CallerRow::own`], in ns.
    pub own_ns: u64,
    /// As [`CallerRow::cumulative`], in ns.
    pub cumulative_ns: u64,
}

impl core::ops::AddAssign for PairTimes {
    fn add_assign(&mut self, other: Self) {
        // The process can write to the memory of the helper's sums, so they may be any numbers.
        self.calls = self.calls.saturating_add(other.calls);
        self.recursive = self.recursive.saturating_add(other.recursive);
        self.own_ns = self.own_ns.saturating_add(other.own_ns);
        self.cumulative_ns = self.cumulative_ns.saturating_add(other.cumulative_ns);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{collections::BTreeSet, thread, vec::Vec};

    use super::*;

    #[test]
    fn a_row_is_a_cache_line() {
        assert_eq!((size_of::<CallerRow>(), align_of::<CallerRow>()), (64, 64));
        assert_eq!(core::mem::offset_of!(CallerRow, cumulative), 32);
    }

    #[test]
    fn a_key_is_of_one_pair() {
        for of in [(0, 0), (7, 9), (u32::MAX - 1, u32::MAX), (3, 0)] {
            assert_eq!(pair(key(of.0, of.1)), Some(of));
        }
        assert_eq!((pair(0), pair(u64::from(u32::MAX))), (None, None));
    }

    fn table(rows: usize) -> Vec<CallerRow> {
        (0..rows).map(|_| CallerRow::NEW).collect()
    }

    #[test]
    fn a_pair_keeps_its_row() {
        let rows = table(1 << 10);
        let numbers: Vec<_> = (0..100).map(|callee| row_of(&rows, 7, callee)).collect();
        assert!(numbers.iter().all(|number| number.is_some_and(|number| number < rows.len())));
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 100, "each has its own");
        assert!((0..100).all(|callee| has_row(&rows, 7, callee) && !has_row(&rows, 8, callee)));
        let again: Vec<_> = (0..100).map(|callee| row_of(&rows, 7, callee)).collect();
        assert_eq!(again, numbers);
    }

    #[test]
    fn a_full_table_has_no_room_for_others() {
        let rows = table(16);
        let placed = (0..100).filter(|callee| row_of(&rows, 0, *callee).is_some()).count();
        assert_eq!(placed, 16);
        assert!((0..16).all(|callee| row_of(&rows, 0, callee).is_some()), "those that are there stay");
        assert_eq!((row_of(&[], 0, 0), has_row(&[], 0, 0)), (None, false));
    }

    #[test]
    fn threads_agree_on_rows() {
        let rows = table(256);
        let rows = rows.as_slice();
        let all: Vec<Vec<_>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(move || (0..150).map(|callee| row_of(rows, 3, callee)).collect()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        });
        assert!(all.iter().all(|numbers| *numbers == all[0] && numbers.len() == 150));
        let used = rows.iter().filter(|row| row.key.load(Ordering::Relaxed) != 0).count();
        assert_eq!(used, all[0].iter().flatten().count(), "no row is claimed twice for a pair");
    }

    #[test]
    fn sums_do_not_wrap() {
        let mut sum = PairTimes { calls: u64::MAX, recursive: 1, own_ns: 2, cumulative_ns: 3 };
        sum += sum;
        assert_eq!(sum, PairTimes { calls: u64::MAX, recursive: 2, own_ns: 4, cumulative_ns: 6 });
    }
}
