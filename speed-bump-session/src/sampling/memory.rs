//! Reads memory while its owner writes to it.

use std::collections::HashMap;

use crate::{
    sys::vm_read,
    units::{Pid, VirtualAddress},
};

/// The memory from which we read stacks.
pub(super) trait Source {
    /// Reads from an address. Returns the number of bytes that this read.
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize;

    /// Reads parts of equal length, up to the first part that cannot be read. The parts follow each other in
    /// the buffer. Returns the number of bytes that this read.
    fn read_parts(&mut self, addresses: &[u64], length: usize, buffer: &mut [u8]) -> usize {
        let mut read = 0;
        for (address, buffer) in addresses.iter().zip(buffer.chunks_exact_mut(length.max(1))) {
            let of_part = self.read(*address, buffer);
            read += of_part;
            if of_part < length {
                break;
            }
        }
        read
    }
}

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfProcess(pub(super) Pid);

impl Source for OfProcess {
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize {
        vm_read::read(self.0, VirtualAddress(address), buffer)
    }

    fn read_parts(&mut self, addresses: &[u64], length: usize, buffer: &mut [u8]) -> usize {
        let parts: Vec<(VirtualAddress, usize)> =
            addresses.iter().map(|address| (VirtualAddress(*address), length)).collect();
        vm_read::read_parts(self.0, &parts, buffer)
    }
}

/// The number of bytes in one read: a power of two, and no more than a page on any machine.
const PIECE: u64 = 4_096;
/// The most pieces that we store. A stack needs this many if it has 256 frames that are far apart.
const PIECES: usize = 512;

/// Memory at one moment. We read each piece only once, until [`forget`](Self::forget).
#[derive(Debug)]
pub(super) struct Moment<S> {
    source: S,
    pieces: HashMap<u64, Box<[u8]>>,
}

impl<S: Source> Moment<S> {
    pub(super) fn new(source: S) -> Self {
        Self { source, pieces: HashMap::new() }
    }

    /// Drops all pieces, so that another moment begins.
    pub(super) fn forget(&mut self) {
        self.pieces = HashMap::new();
    }

    /// The memory itself, past the stored pieces.
    pub(super) fn source(&mut self) -> &mut S {
        &mut self.source
    }

    /// Fills the buffer; `None` if we cannot read all of it.
    pub(super) fn read(&mut self, address: u64, buffer: &mut [u8]) -> Option<()> {
        let mut at = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (piece, inside) = (at & !(PIECE - 1), (at % PIECE) as usize);
            if self.pieces.len() >= PIECES {
                self.pieces.clear();
            }
            let source = &mut self.source;
            let bytes = self.pieces.entry(piece).or_insert_with(|| {
                let mut bytes = vec![0; PIECE as usize];
                let read = source.read(piece, &mut bytes);
                bytes.truncate(read);
                bytes.into_boxed_slice()
            });
            let bytes = bytes.get(inside..)?;
            let (filled, after) = rest.split_at_mut(rest.len().min(PIECE as usize - inside));
            filled.copy_from_slice(bytes.get(..filled.len())?);
            at = at.checked_add(filled.len() as u64)?;
            rest = after;
        }
        Some(())
    }

    /// Reads a word.
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_ne_bytes(bytes))
    }
}

/// The word at an offset in these bytes.
pub(super) fn word(bytes: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A memory that has these bytes at this address.
    struct From(u64, Vec<u8>, usize);

    impl Source for From {
        fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize {
            self.2 += 1;
            let Some(at) = address.checked_sub(self.0) else { return 0 };
            let bytes = self.1.get(at as usize..).unwrap_or_default();
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
            length
        }
    }

    #[test]
    fn what_lies_over_the_edge_of_a_piece_is_read_whole() {
        let bytes: Vec<u8> = (0..9_000_u32).map(|n| n as u8).collect();
        let mut moment = Moment::new(From(PIECE, bytes.clone(), 0));
        let mut buffer = [0; 5_000];
        moment.read(PIECE + 100, &mut buffer).unwrap();
        assert_eq!(buffer[..], bytes[100..5_100]);
        assert_eq!(moment.word(PIECE + 8_992), word(&bytes, 8_992));
        assert_eq!(moment.word(PIECE + 8_993), None, "beyond the end");
        assert_eq!(moment.word(8), None);
        assert_eq!(moment.word(u64::MAX - 3), None);
        let reads = moment.source().2;
        assert!(moment.word(PIECE).is_some());
        assert_eq!(moment.source().2, reads, "known already");
        moment.forget();
        assert!(moment.word(PIECE).is_some());
        assert_eq!(moment.source().2, reads + 1);
    }
}
