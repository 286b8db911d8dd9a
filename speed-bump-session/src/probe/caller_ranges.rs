//! Code of callers as ranges of addresses: sorted, without overlap, and as few as possible.
//!
//! The sizes of symbols are the file's claims: functions may overlap, be empty, or reach to the end of the
//! address space.

use speed_bump_abi::CallerRange;

/// At most this many bytes between two functions are padding: functions begin at multiples of 64 at most.
const PADDING: u64 = 63;

/// Code of a function, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The first address.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The callers that it is code of, by bit; 0: it is other code.
    pub callers: u32,
}

/// How many pieces of code cover an address, of each caller and in all.
struct Covers {
    callers: [u32; u32::BITS as usize],
    codes: u32,
}

impl Covers {
    fn change(&mut self, callers: u32, begins: bool) {
        let step = |count: &mut u32| *count = if begins { *count + 1 } else { *count - 1 };
        step(&mut self.codes);
        for (bit, count) in self.callers.iter_mut().enumerate().filter(|(bit, _)| callers >> bit & 1 == 1) {
            debug_assert!(begins || *count > 0, "bit {bit} ends before it begins");
            step(count);
        }
    }

    fn callers(&self) -> u32 {
        let bits = self.callers.iter().enumerate().filter(|(_, count)| **count > 0);
        bits.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }
}

/// The ranges of callers among all code of a file. An address that several functions contain is code of all
/// of them. Padding between two functions of the same callers is theirs.
pub fn in_file(codes: &[Code]) -> Vec<CallerRange> {
    ranges(codes, PADDING)
}

/// The ranges of callers in a process, from the ranges in its files. Between two of these may be other code.
pub fn in_process(codes: &[Code]) -> Vec<CallerRange> {
    ranges(codes, 0)
}

fn ranges(codes: &[Code], padding: u64) -> Vec<CallerRange> {
    let mut ranges: Vec<CallerRange> = Vec::new();
    let mut add = |start: u64, end: u64, callers: u32| match ranges.last_mut() {
        Some(last) if last.callers == callers && start - last.end <= padding => last.end = end,
        _ => ranges.push(CallerRange { start, end, callers, reserved: 0 }),
    };
    let mut edges: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * codes.len());
    for code in codes {
        let end = code.start.saturating_add(code.length);
        if code.start < end {
            edges.push((code.start, true, code.callers));
            edges.push((end, false, code.callers));
        }
    }
    edges.sort_unstable();
    let mut covers = Covers { callers: [0; u32::BITS as usize], codes: 0 };
    let mut before = 0;
    for (address, begins, callers) in edges {
        if address > before && covers.codes > 0 {
            add(before, address, covers.callers());
        }
        before = address;
        covers.change(callers, begins);
    }
    ranges.retain(|range| range.callers != 0);
    ranges
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use speed_bump_abi::CallerSpan;

    use super::*;

    fn code(start: u64, length: u64, callers: u32) -> Code {
        Code { start, length, callers }
    }

    fn plain(codes: &[Code]) -> Vec<(u64, u64, u32)> {
        in_file(codes).iter().map(|range| (range.start, range.end, range.callers)).collect()
    }

    #[test]
    fn neighbours_of_the_same_callers_are_one_range() {
        let same = [code(0x100, 0x10, 1), code(0x120, 8, 1), code(0x128, 8, 1), code(0x200, 8, 1)];
        assert_eq!(plain(&same), [(0x100, 0x130, 1), (0x200, 0x208, 1)]);
        let others = [code(0x100, 0x10, 1), code(0x110, 4, 0), code(0x120, 8, 1), code(0x128, 8, 2)];
        assert_eq!(plain(&others), [(0x100, 0x110, 1), (0x120, 0x128, 1), (0x128, 0x130, 2)]);
    }

    #[test]
    fn nothing_is_known_of_what_lies_between_the_ranges_of_a_process() {
        let codes = [code(0x100, 0x10, 1), code(0x110, 8, 1), code(0x120, 8, 1)];
        let found: Vec<_> = in_process(&codes).iter().map(|range| (range.start, range.end)).collect();
        assert_eq!(found, [(0x100, 0x118), (0x120, 0x128)]);
    }

    #[test]
    fn code_of_several_functions_is_of_the_callers_of_all() {
        let nested = [code(10, 20, 1), code(15, 5, 2), code(15, 5, 0), code(25, 10, 3)];
        assert_eq!(plain(&nested), [(10, 15, 1), (15, 20, 3), (20, 25, 1), (25, 35, 3)]);
        assert_eq!(plain(&[code(10, 0, 1), code(10, 5, 0)]), []);
    }

    #[test]
    fn symbols_that_lie_about_their_size_end_with_the_addresses() {
        let wrapping = [code(u64::MAX - 4, u64::MAX, 1), code(1, u64::MAX, 2)];
        assert_eq!(plain(&wrapping), [(1, u64::MAX - 4, 2), (u64::MAX - 4, u64::MAX, 3)]);
        assert_eq!(plain(&[code(u64::MAX, 1, 1)]), [], "no address is behind the last");
    }

    /// Codes that overlap, touch, are empty, or have no end.
    fn codes() -> impl Strategy<Value = Vec<Code>> {
        // No process has addresses of 64 bits.
        let start = prop_oneof![0..600_u64, ((1_u64 << 63) - 50)..(1_u64 << 63)];
        let length = prop_oneof![0..90_u64, Just(0), Just(u64::MAX)];
        let callers = prop_oneof![Just(0), 1..8_u32, any::<u32>()];
        prop::collection::vec(
            (start, length, callers).prop_map(|(at, length, of)| code(at, length, of)),
            0..24,
        )
    }

    proptest! {
        #[test]
        fn every_address_has_the_callers_of_all_code_there(codes in codes(), address in 0..700_u64) {
            let ranges = in_file(&codes);
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start, "{pair:?}");
            }
            prop_assert!(ranges.iter().all(|range| range.start < range.end && range.callers != 0));
            let span = CallerSpan { first: 0, count: u32::try_from(ranges.len()).unwrap() };
            let read = |index: u32| ranges.get(index as usize).copied();
            let there = |code: &&Code| address >= code.start && address - code.start < code.length;
            let expected = codes.iter().filter(there).fold(None, |callers: Option<u32>, code| {
                Some(callers.unwrap_or(0) | code.callers)
            });
            let found = span.callers_at(address, read);
            match expected {
                Some(callers) => prop_assert_eq!(found, Some(callers)),
                // Padding, or nothing.
                None => prop_assert!(found == Some(0) || is_padding(&codes, address, found.unwrap())),
            }
        }
    }

    /// Whether the functions around an address have these callers.
    fn is_padding(codes: &[Code], address: u64, callers: u32) -> bool {
        let codes = || codes.iter().filter(|code| code.length > 0);
        let ends = codes().map(|code| code.start.saturating_add(code.length)).filter(|end| *end <= address);
        let starts = codes().map(|code| code.start).filter(|start| *start > address);
        let (Some(end), Some(start)) = (ends.max(), starts.min()) else { return false };
        let at = |address: u64| {
            let there = codes().filter(|code| address >= code.start && address - code.start < code.length);
            there.fold(0, |callers, code| callers | code.callers)
        };
        start - end <= PADDING && at(end - 1) == callers && at(start) == callers
    }
}
