//! Decodes code piece by piece.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::LONGEST_INSTRUCTION;
use crate::probe::site::CodeMap;

/// The size of the first piece in bytes: most code that we follow ends soon.
const FIRST_PIECE: usize = 128;
/// The size of the largest piece in bytes.
const LARGEST_PIECE: usize = 4_096;

/// The instructions from an address on, in order, as far as there is code.
pub(super) struct Instructions<'m> {
    map: &'m CodeMap<'m>,
    next: u64,
    end: u64,
    piece: usize,
    ready: std::vec::IntoIter<Instruction>,
}

impl<'m> Instructions<'m> {
    /// The instructions from `start` to `end`. We cut an instruction that reaches beyond `end`, which makes
    /// it invalid.
    pub(super) fn new(map: &'m CodeMap<'m>, start: u64, end: u64) -> Self {
        Self { map, next: start, end, piece: FIRST_PIECE, ready: Vec::new().into_iter() }
    }

    /// Whether there is no code at `start`.
    pub(super) fn is_outside_code(&self) -> bool {
        self.map.bytes_at(self.next, 1).is_empty()
    }

    /// Decodes another piece. If an instruction may continue after the piece, we leave it for the next piece.
    fn decode_piece(&mut self) {
        let wanted =
            usize::try_from(self.end.saturating_sub(self.next)).unwrap_or(usize::MAX).min(self.piece);
        let bytes = self.map.bytes_at(self.next, wanted);
        let goes_on = bytes.len() == wanted && self.next.saturating_add(wanted as u64) < self.end;
        let whole = bytes.len().saturating_sub(if goes_on { LONGEST_INSTRUCTION } else { 0 });
        let mut decoder = Decoder::with_ip(64, &bytes, self.next, DecoderOptions::NONE);
        let mut decoded = Vec::new();
        while decoder.can_decode() && decoder.position() < whole {
            decoded.push(decoder.decode());
        }
        if goes_on {
            self.next = decoder.ip();
        } else {
            self.end = self.next;
        }
        self.piece = (self.piece * 2).min(LARGEST_PIECE);
        self.ready = decoded.into_iter();
    }
}

impl Iterator for Instructions<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        if let Some(instruction) = self.ready.next() {
            return Some(instruction);
        }
        if self.next >= self.end {
            return None;
        }
        self.decode_piece();
        self.ready.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        probe::site::{CodeSegment, LandingPads},
        units::VirtualAddress,
    };

    #[test]
    fn pieces_join_as_if_all_were_decoded_at_once() {
        // Random bytes: instructions of all lengths, and bytes that are not an instruction.
        let mut noise = 1_u32;
        let bytes: Vec<u8> = (0..20_000)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        for (start, end) in [(0, 20_000), (7, 19_990), (19_000, u64::MAX), (3, 131), (5, 5)] {
            let last = usize::try_from(end).unwrap_or(usize::MAX).min(bytes.len());
            let mut decoder = Decoder::with_ip(64, &bytes[start..last], start as u64, DecoderOptions::NONE);
            let mut expected = Vec::new();
            while decoder.can_decode() {
                expected.push(decoder.decode());
            }
            let segment = CodeSegment { address: VirtualAddress(0), bytes: &bytes };
            let map = CodeMap::new([segment], [], LandingPads::InSymbols);
            let found: Vec<_> = Instructions::new(&map, start as u64, end).collect();
            assert!(found == expected, "{start} to {end}: {} of {}", found.len(), expected.len());
        }
    }
}
