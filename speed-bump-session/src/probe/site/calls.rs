//! Direct calls within one file: which function calls which.
//!
//! We use this only for advice. We compare bytes without decoding the code in between, so data may look like
//! a call. We do not see calls through pointers or from other files.

use std::{ops::Range, sync::OnceLock};

use super::CodeMap;
use crate::units::VirtualAddress;

/// The most bytes of code that we search. We skip a file that has more.
const CODE_LIMIT: u64 = 64 << 20;
/// The most calls that we remember.
const CALLS_LIMIT: usize = 4 << 20;
/// The number of bytes in one read.
const PIECE: usize = 1 << 20;
/// The length of `call rel32` and `jmp rel32` in bytes, and the first bytes of both (Intel SDM, volume 2).
const BYTES: usize = 5;
const OPCODES: [u8; 2] = [0xe8, 0xe9];

/// The direct calls of a file, and its jumps to functions.
#[derive(Debug, Default)]
pub struct DirectCalls {
    /// The callee and the address of each call, sorted.
    calls: Vec<(u64, u64)>,
}

/// The calls, once we have found them. `None` inside if there is too much code.
pub(super) type Kept = OnceLock<Option<DirectCalls>>;

impl DirectCalls {
    /// The addresses of the calls of a function.
    pub fn callers(&self, entry: VirtualAddress) -> impl Iterator<Item = VirtualAddress> {
        let first = self.calls.partition_point(|(to, _)| *to < entry.0);
        let calls = self.calls.get(first..).unwrap_or_default().iter();
        calls.take_while(move |(to, _)| *to == entry.0).map(|(_, from)| VirtualAddress(*from))
    }

    /// The functions that the code in a range calls.
    pub fn from(&self, range: Range<VirtualAddress>) -> impl Iterator<Item = VirtualAddress> {
        let calls = self.calls.iter().filter(move |(_, from)| range.contains(&VirtualAddress(*from)));
        calls.map(|(to, _)| VirtualAddress(*to))
    }
}

impl CodeMap<'_> {
    /// The direct calls in this code. The first call of this method finds them. `None` if there is too much
    /// code, or we cannot recognise calls of this architecture.
    pub fn direct_calls(&self) -> Option<&DirectCalls> {
        self.direct_calls.get_or_init(|| self.find_calls()).as_ref()
    }

    fn find_calls(&self) -> Option<DirectCalls> {
        if cfg!(not(target_arch = "x86_64")) {
            return None;
        }
        let ranges = self.ranges();
        let lengths = ranges.iter().map(|range| range.end.saturating_sub(range.start));
        let total = lengths.fold(0_u64, u64::saturating_add);
        if total > CODE_LIMIT {
            return None;
        }
        let mut calls = Vec::new();
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                let piece = self.bytes_at(start, PIECE);
                for (offset, window) in piece.windows(BYTES).enumerate() {
                    let Some(to) = target(window, start.saturating_add(offset as u64)) else { continue };
                    if self.is_entry(to) {
                        calls.push((to, start.saturating_add(offset as u64)));
                    }
                }
                if calls.len() > CALLS_LIMIT {
                    return None;
                }
                // The next piece starts at the first address whose five bytes do not all lie in this piece.
                match piece.len().checked_sub(BYTES - 1) {
                    Some(step @ 1..) => start = start.saturating_add(step as u64),
                    _ => break,
                }
            }
        }
        calls.sort_unstable();
        Some(DirectCalls { calls })
    }
}

/// The destination of a call or jump with these bytes; `None` for other bytes.
fn target(bytes: &[u8], address: u64) -> Option<u64> {
    let [opcode, distance @ ..] = bytes.first_chunk::<BYTES>()?;
    let distance = i32::from_le_bytes(*distance);
    OPCODES
        .contains(opcode)
        .then(|| address.wrapping_add(BYTES as u64).wrapping_add_signed(i64::from(distance)))
}

#[cfg(all(test, target_arch = "x86_64"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::probe::site::{CodeSegment, CodeSymbol, LandingPads};

    const START: u64 = 0x40_1000;

    fn entry(offset: u64) -> CodeSymbol {
        CodeSymbol { address: VirtualAddress(START + offset), size: 16, fragment: false }
    }

    /// Writes a `call` or `jmp` at one offset, to another.
    fn branch(code: &mut [u8], opcode: u8, at: usize, to: usize) {
        let distance = (to as i32) - (at as i32) - 5;
        code[at] = opcode;
        code[at + 1..at + 5].copy_from_slice(&distance.to_le_bytes());
    }

    #[test]
    fn calls_and_tail_calls_of_functions_are_found_at_both_ends() {
        let mut code = vec![0x90; PIECE + 64];
        branch(&mut code, 0xe8, 0x20, 0x10);
        branch(&mut code, 0xe9, 0x38, 0x10);
        // This call leads to an address where no function starts.
        branch(&mut code, 0xe8, 0x30, 0x12);
        // This call lies on the border between two pieces.
        branch(&mut code, 0xe8, PIECE - 2, 0x10);
        let segment = CodeSegment { address: VirtualAddress(START), bytes: &code };
        let symbols = [entry(0x10), entry(0x20), entry(0x30)];
        let map = CodeMap::new([segment], symbols, LandingPads::InSymbols);
        let calls = map.direct_calls().unwrap();
        let of: Vec<u64> = calls.callers(VirtualAddress(START + 0x10)).map(|from| from.0 - START).collect();
        assert_eq!(of, [0x20, 0x38, PIECE as u64 - 2]);
        assert_eq!(calls.callers(VirtualAddress(START + 0x20)).count(), 0);
        let range = VirtualAddress(START + 0x30)..VirtualAddress(START + 0x40);
        assert_eq!(calls.from(range).collect::<Vec<_>>(), [VirtualAddress(START + 0x10)]);
    }

    #[test]
    fn more_code_than_that_is_left_alone() {
        #[derive(Debug)]
        struct Zeros;
        impl super::super::ReadCode for Zeros {
            fn read_code(&self, _: VirtualAddress, buffer: &mut [u8]) -> usize {
                buffer.len()
            }
        }
        let calls = |end| {
            let segment = std::iter::once(START..end);
            CodeMap::in_file(&Zeros, segment, [], LandingPads::InSymbols).direct_calls().is_some()
        };
        assert!(calls(START + 4 * PIECE as u64) && !calls(START + CODE_LIMIT + 1) && !calls(u64::MAX));
    }
}
