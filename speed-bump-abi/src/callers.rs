//! Who calls whom: the table in which the helper adds up the calls of each pair of functions.
//!
//! Rows are found by open addressing: a pair has the first row of its own or of nobody's, of so many from a
//! place on that its key says.

use core::sync::atomic::AtomicU64;

/// Rows that are looked at for a pair; the table is full for it where all are others'.
pub const LOOKS: u32 = 32;

/// The calls of one function by another one, and their times in units of the block's
/// [`Clock`](crate::control_block::Clock): written by the helper when calls end. The sums wrap around.
///
/// The caller is the timed function that was in progress on the thread. A call is *recursive* where another
/// one of the same pair is in progress there.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct CallerRow {
    /// The [`key`] of the pair; 0: nobody's.
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
    /// Nobody's.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const NEW: Self = Self {
        key: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        recursive: AtomicU64::new(0),
        own: AtomicU64::new(0),
        cumulative: AtomicU64::new(0),
    };
}

/// What a pair is known by, of functions by their numbers in the block; never 0.
#[inline]
pub const fn key(caller: u32, callee: u32) -> u64 {
    ((caller as u64 + 1) << 32) | callee as u64
}

/// The caller and the callee of a key; `None` for what is no key.
#[inline]
pub const fn pair(key: u64) -> Option<(u32, u32)> {
    match ((key >> 32) as u32).checked_sub(1) {
        Some(caller) => Some((caller, key as u32)),
        None => None,
    }
}

/// Which rows are looked at for a key, in a table of so many, a power of two.
#[inline]
pub fn places(key: u64, rows: u32) -> impl Iterator<Item = u32> {
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
    (0..LOOKS.min(rows)).map(move |look| first.wrapping_add(look) & rows.wrapping_sub(1))
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
        // A process may have written what its helper summed up.
        self.calls = self.calls.saturating_add(other.calls);
        self.recursive = self.recursive.saturating_add(other.recursive);
        self.own_ns = self.own_ns.saturating_add(other.own_ns);
        self.cumulative_ns = self.cumulative_ns.saturating_add(other.cumulative_ns);
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_rows_of_a_pair_are_in_the_table() {
        for rows in [1_u32, 16, 1 << 16] {
            for of in [key(0, 0), key(5, 9), u64::MAX] {
                let all: [u32; LOOKS as usize] =
                    core::array::from_fn(|n| places(of, rows).nth(n).unwrap_or(0));
                assert!(all.iter().all(|place| *place < rows), "{rows}");
                assert_eq!(places(of, rows).count(), LOOKS.min(rows) as usize);
            }
        }
        assert_eq!(places(1, 0).count(), 0);
    }

    #[test]
    fn sums_do_not_wrap() {
        let mut sum = PairTimes { calls: u64::MAX, recursive: 1, own_ns: 2, cumulative_ns: 3 };
        sum += sum;
        assert_eq!(sum, PairTimes { calls: u64::MAX, recursive: 2, own_ns: 4, cumulative_ns: 6 });
    }
}
