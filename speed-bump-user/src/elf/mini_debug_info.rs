//! `.gnu_debugdata`: an ELF file with nothing but a symbol table, packed with xz into a stripped file.
//!
//! Format: GDB manual, "Debugging information in a special section"; the xz file format 1.2.1 and LZMA2.

use super::{
    error::{ElfError, ElfErrorKind},
    file::ElfFile,
};

/// Largest unpacked size that is accepted, in bytes; the largest known (libLLVM's) is a tenth of it.
const UNPACKED_LIMIT: u64 = 256 << 20;

/// Unpacks the contents of the section.
pub(super) fn unpack(file: &ElfFile, packed: &[u8]) -> Result<ElfFile, ElfError> {
    let refuse = |why: String| file.error(ElfErrorKind::MiniDebugInfo(why));
    match unpacked_size(packed) {
        None => return Err(refuse("it is not an xz stream of LZMA2 blocks".to_owned())),
        Some(size) if size > UNPACKED_LIMIT => {
            return Err(refuse(format!("it has {size} bytes unpacked, more than {UNPACKED_LIMIT}")));
        }
        Some(_) => {}
    }
    let mut unpacked = Vec::new();
    let mut input = packed;
    lzma_rs::xz_decompress(&mut input, &mut unpacked).map_err(|error| refuse(error.to_string()))?;
    ElfFile::debug_from_bytes(unpacked, file.path().to_owned())
        .map_err(|error| refuse(format!("what it contains {}", error.kind)))
}

/// The size that the chunks of an xz stream declare in sum. A decoder produces what they declare, so this
/// bounds its memory before it starts: LZMA2 packs up to 7,000 to 1.
fn unpacked_size(packed: &[u8]) -> Option<u64> {
    const STREAM_HEADER: usize = 12;
    let check_size = match packed.get(7)? {
        0x00 => 0,
        0x01 => 4,
        0x04 => 8,
        0x0A => 32,
        _ => return None,
    };
    let mut position = STREAM_HEADER;
    let mut total: u64 = 0;
    loop {
        // Block header: its size in words less one; 0 begins the index instead, which ends the blocks.
        let block = position;
        let header_size = match packed.get(position)? {
            0 => return Some(total),
            size => (usize::from(*size) + 1) * 4,
        };
        // One filter only: a second one would unpack what the first unpacked.
        if packed.get(position + 1)? & 3 != 0 {
            return None;
        }
        position += header_size;
        loop {
            let control = *packed.get(position)?;
            let word =
                |at: usize| Some(usize::from(u16::from_be_bytes([*packed.get(at)?, *packed.get(at + 1)?])));
            let (unpacked, header, body) = match control {
                0 => break,
                1 | 2 => {
                    let size = word(position + 1)? + 1;
                    (size, 3, size)
                }
                0x80.. => {
                    let size = (usize::from(control & 0x1f) << 16) + word(position + 1)? + 1;
                    // Bits 5 and 6 above 1: a byte of properties follows.
                    (size, 5 + usize::from(control >= 0xc0), word(position + 3)? + 1)
                }
                _ => return None,
            };
            total += unpacked as u64;
            position += header + body;
        }
        // The end mark, padding to a multiple of four, the check.
        position = block + (position + 1 - block).next_multiple_of(4) + check_size;
    }
}
