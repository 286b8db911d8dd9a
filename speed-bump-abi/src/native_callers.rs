//! `caller=` of native functions: which lines are for a call, by where it returns to.
//!
//! The loader knows where the functions lie that callers' patterns select. It sorts these ranges, for each
//! process, and gives each the bits of the callers that it is code of. A program reads the return address of
//! a call, finds its range, and takes the first line of the called function that has one of these bits.

/// The most different callers of a session: each has a bit.
pub const CALLERS: u32 = 32;

/// The most ranges of a process.
pub const RANGES_OF_PROCESS: u32 = 1 << HALVINGS;
/// How often so many ranges can be halved.
const HALVINGS: u32 = 12;

/// Code of functions that callers' patterns select, in the memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CallerRange {
    /// The first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// The callers that it is code of, by bit.
    pub callers: u32,
    /// 0.
    pub reserved: u32,
}

/// The ranges of a process: consecutive, sorted by address, and without overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CallerSpan {
    /// Index of the first in [`CALLER_RANGES`](crate::maps::CALLER_RANGES).
    pub first: u32,
    /// How many there are, at most [`RANGES_OF_PROCESS`].
    pub count: u32,
}

/// A line that is for calls from some callers alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CallerLine {
    /// The caller that it is for, by bit; 0: no line.
    pub callers: u32,
    /// The function that it counts as: index into [`FUNCTIONS`](crate::maps::FUNCTIONS).
    pub function: u32,
}

/// The lines of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CallerLines {
    /// How many there are in `lines`.
    pub count: u32,
    /// The function that all other calls count as, or [`NO_FUNCTION`](crate::NO_FUNCTION): these are neither
    /// counted nor delayed.
    pub others: u32,
    /// In the order in which they are tried.
    pub lines: [CallerLine; CALLERS as usize],
}

/// The lines of a function, so that a program finds either the old ones or the new ones when they change: the
/// loader writes the set that is not in use, and then changes `current`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CallerLineSets {
    /// The number of the set that holds.
    pub current: u32,
    /// 0.
    pub reserved: u32,
    /// Two sets.
    pub sets: [CallerLines; 2],
}

impl Default for CallerLines {
    fn default() -> Self {
        Self::NONE
    }
}

impl CallerLines {
    /// No call counts.
    pub const NONE: Self = Self {
        count: 0,
        others: crate::NO_FUNCTION,
        lines: [CallerLine { callers: 0, function: 0 }; CALLERS as usize],
    };

    /// The function that a call counts as if `callers` call it; [`NO_FUNCTION`](crate::NO_FUNCTION): none.
    #[inline(always)]
    pub fn function(&self, callers: u32) -> u32 {
        let mut number = 0;
        while number < CALLERS as usize && number < self.count as usize {
            let line = &self.lines[number];
            if line.callers & callers != 0 {
                return line.function;
            }
            number += 1;
        }
        self.others
    }

    /// Whether calls may count as this function.
    #[inline(always)]
    pub fn have(&self, function: u32) -> bool {
        let mut number = 0;
        while number < CALLERS as usize && number < self.count as usize {
            if self.lines[number].function == function {
                return true;
            }
            number += 1;
        }
        self.others == function
    }
}

impl CallerLineSets {
    /// The lines that hold.
    #[inline(always)]
    pub fn in_force(&self) -> &CallerLines {
        // SAFETY: a reference to a word of our own; the loader may change it at any moment.
        let current = unsafe { (&raw const self.current).read_volatile() };
        &self.sets[(current & 1) as usize]
    }
}

impl CallerSpan {
    /// The callers that an address is code of, by bit. `range` reads a range by its index. `None`: it failed.
    ///
    /// Halving takes the same path for every address, because the verifier of kernels walks through each
    /// path. The number of halvings depends only on the number of ranges.
    #[inline(always)]
    pub fn callers_at(self, address: u64, range: impl Fn(u32) -> Option<CallerRange>) -> Option<u32> {
        if self.count == 0 {
            return Some(0);
        }
        let (mut first, mut count) = (self.first, self.count);
        let mut halvings = 0;
        while halvings < HALVINGS && count > 1 {
            let half = count / 2;
            let middle = range(first.wrapping_add(half))?;
            // 1 where the range begins at the address or before; the difference of two addresses of
            // processes fits.
            let is_before = (middle.start.wrapping_sub(address).wrapping_sub(1) >> 63) as u32;
            first = first.wrapping_add(half.wrapping_mul(is_before));
            count -= half;
            halvings += 1;
        }
        let found = range(first)?;
        Some(if found.start <= address && address < found.end { found.callers } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::mem::{offset_of, size_of};
    use std::{vec, vec::Vec};

    use super::*;
    use crate::NO_FUNCTION;

    #[test]
    fn records_have_no_padding_and_keep_their_layout() {
        assert_eq!(size_of::<CallerRange>(), 3 * 8);
        assert_eq!(offset_of!(CallerRange, callers), 16);
        assert_eq!(size_of::<CallerSpan>(), 8);
        assert_eq!(size_of::<CallerLine>(), 8);
        assert_eq!(size_of::<CallerLines>(), 8 + 32 * 8);
        assert_eq!(size_of::<CallerLineSets>(), 8 + 2 * size_of::<CallerLines>());
        assert_eq!(offset_of!(CallerLineSets, sets), 8);
    }

    fn range(start: u64, end: u64, callers: u32) -> CallerRange {
        CallerRange { start, end, callers, reserved: 0 }
    }

    fn find(ranges: &[CallerRange], first: u32, count: u32, address: u64) -> Option<u32> {
        CallerSpan { first, count }.callers_at(address, |index| ranges.get(index as usize).copied())
    }

    #[test]
    fn an_address_has_the_callers_of_its_range() {
        let ranges = [range(1, 2, 8), range(10, 20, 1), range(20, 30, 2), range(50, 51, 3), range(60, 99, 4)];
        let found = |address| find(&ranges, 1, 3, address);
        for (address, callers) in
            [(0, 0), (1, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 0), (50, 3), (51, 0), (60, 0)]
        {
            assert_eq!(found(address), Some(callers), "{address}");
        }
        assert_eq!([u64::MAX, 1 << 63, (1 << 63) + 15].map(found), [Some(0); 3], "no address of a process");
        assert_eq!(find(&ranges, 0, 0, 1), Some(0));
        assert_eq!(find(&ranges, 9, 3, 1), None, "beyond the map");
    }

    #[test]
    fn each_of_the_most_ranges_is_found() {
        for count in [1, 2, 3, 100, 4_095, RANGES_OF_PROCESS] {
            let ranges: Vec<_> = (0..u64::from(count)).map(|at| range(at * 8 + 4, at * 8 + 8, 7)).collect();
            for at in 0..u64::from(count) {
                let found = [3, 4, 7, 8].map(|offset| find(&ranges, 0, count, at * 8 + offset));
                assert_eq!(found, [Some(0), Some(7), Some(7), Some(0)], "{at} of {count}");
            }
        }
    }

    #[test]
    fn the_first_line_with_a_caller_takes_the_call() {
        let mut lines = CallerLines { count: 3, others: 9, ..CallerLines::NONE };
        for (line, (callers, function)) in lines.lines.iter_mut().zip([(2, 5), (1, 6), (4, 7), (8, 8)]) {
            *line = CallerLine { callers, function };
        }
        let functions = [0, 1, 2, 3, 4, 5, 8, 16, u32::MAX].map(|callers| lines.function(callers));
        assert_eq!(functions, [9, 6, 5, 5, 7, 6, 9, 9, 5]);
        let have: Vec<_> = (4..=9).filter(|function| lines.have(*function)).collect();
        assert_eq!(have, vec![5, 6, 7, 9]);
        assert_eq!((CallerLines::NONE.function(u32::MAX), CallerLines::NONE.have(0)), (NO_FUNCTION, false));
        let full = CallerLines { count: u32::MAX, ..lines };
        assert_eq!((full.function(8), full.function(16)), (8, 9), "no more than there are");
    }

    #[test]
    fn one_set_of_lines_holds() {
        let set = |others| CallerLines { others, ..CallerLines::NONE };
        for (current, others) in [(0, 5), (1, 6), (2, 5), (u32::MAX, 6)] {
            let sets = CallerLineSets { current, reserved: 0, sets: [set(5), set(6)] };
            assert_eq!(sets.in_force().others, others);
        }
    }
}
