//! Own and cumulative times of functions: the rows in which the helper adds them up.

use core::sync::atomic::AtomicU64;

/// The times of one function, in units of the block's [`Clock`](crate::control_block::Clock). The helper
/// writes them. The sums wrap around.
///
/// Times are added when a call returns, raises or is suspended. A call is *recursive* where another one of
/// the same function is in progress on the thread.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct TimeRow {
    /// Recursive calls, of those in [`Calls::calls`](crate::control_block::Calls::calls).
    pub recursive: AtomicU64,
    /// How often a generator or coroutine went on after it had been suspended.
    pub resumed: AtomicU64,
    /// How many of these resumptions were recursive.
    pub recursive_resumed: AtomicU64,
    /// Time in the function, without the time in other timed functions that it called.
    pub own: AtomicU64,
    /// Time in the function, with everything that it called. In a recursion, only the outermost call counts.
    pub cumulative: AtomicU64,
}

impl TimeRow {
    /// Zeros.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const NEW: Self = Self {
        recursive: AtomicU64::new(0),
        resumed: AtomicU64::new(0),
        recursive_resumed: AtomicU64::new(0),
        own: AtomicU64::new(0),
        cumulative: AtomicU64::new(0),
    };
}

/// The times of one function, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FunctionTimes {
    /// As [`TimeRow::recursive`].
    pub recursive: u64,
    /// As [`TimeRow::resumed`].
    pub resumed: u64,
    /// As [`TimeRow::recursive_resumed`].
    pub recursive_resumed: u64,
    /// As [`TimeRow::own`], in ns.
    pub own_ns: u64,
    /// As [`TimeRow::cumulative`], in ns.
    pub cumulative_ns: u64,
}

impl FunctionTimes {
    /// What was added since an earlier reading of the same sums.
    pub const fn since(self, earlier: &Self) -> Self {
        Self {
            recursive: self.recursive.saturating_sub(earlier.recursive),
            resumed: self.resumed.saturating_sub(earlier.resumed),
            recursive_resumed: self.recursive_resumed.saturating_sub(earlier.recursive_resumed),
            own_ns: self.own_ns.saturating_sub(earlier.own_ns),
            cumulative_ns: self.cumulative_ns.saturating_sub(earlier.cumulative_ns),
        }
    }
}

impl core::ops::AddAssign for FunctionTimes {
    fn add_assign(&mut self, other: Self) {
        // The process can write to the memory of the helper's sums, so they may be any numbers.
        self.recursive = self.recursive.saturating_add(other.recursive);
        self.resumed = self.resumed.saturating_add(other.resumed);
        self.recursive_resumed = self.recursive_resumed.saturating_add(other.recursive_resumed);
        self.own_ns = self.own_ns.saturating_add(other.own_ns);
        self.cumulative_ns = self.cumulative_ns.saturating_add(other.cumulative_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_cache_line() {
        assert_eq!((size_of::<TimeRow>(), align_of::<TimeRow>()), (64, 64));
    }

    #[test]
    fn sums_neither_wrap_nor_fall_below_zero() {
        let of =
            |n| FunctionTimes { recursive: n, resumed: n, recursive_resumed: n, own_ns: n, cumulative_ns: n };
        let mut sum = of(u64::MAX);
        sum += of(3);
        assert_eq!((sum, sum.since(&of(1))), (of(u64::MAX), of(u64::MAX - 1)));
        assert_eq!(of(3).since(&of(5)), of(0));
    }
}
