//! `.gnu_debugdata`: an ELF file that contains only a symbol table, compressed with xz in a stripped file.
//!
//! The formats are from the GDB manual ("Debugging information in a special section"), the xz file format
//! 1.2.1, and LZMA2.

use super::{
    error::{ElfError, ElfErrorKind},
    file::ElfFile,
};

/// The largest unpacked size that we accept, in bytes: three times the largest known size (of libLLVM).
/// Unpacking takes three times as much memory.
const UNPACKED_LIMIT: u64 = 64 << 20;

/// Unpacks the contents of the section.
pub fn unpack(file: &ElfFile, packed: &[u8]) -> Result<ElfFile, ElfError> {
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

/// The sum of the sizes that the chunks of an xz stream declare; `None` if we do not accept the stream. A
/// decoder produces exactly the declared sizes, so this sum bounds the decoder's memory before the decoder
/// starts. LZMA2 can pack 7,000 bytes into 1, so the packed size does not bound the memory.
fn unpacked_size(packed: &[u8]) -> Option<u64> {
    const MAGIC: &[u8] = b"\xfd7zXZ\0";
    const STREAM_HEADER: usize = 12;
    if !packed.starts_with(MAGIC) {
        return None;
    }
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
        // The block header begins with its size in words, minus one. If this byte is 0, there are no more
        // blocks, and the index begins here.
        let block = position;
        let header_size = match packed.get(position)? {
            0 => return (!overflows_footer(packed.get(position..)?)).then_some(total),
            size => (usize::from(*size) + 1) * 4,
        };
        // We accept only one filter: a second one would unpack the output of the first one.
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
                    // If bits 5 and 6 are above 1, a byte of properties follows.
                    (size, 5 + usize::from(control >= 0xc0), word(position + 3)? + 1)
                }
                _ => return None,
            };
            total += unpacked as u64;
            position += header + body;
        }
        // The end mark, padding to a multiple of four, and the check come after the chunks.
        position = block + (position + 1 - block).next_multiple_of(4) + check_size;
    }
}

/// Whether the index and the footer contain the number ffffffff. `lzma-rs` adds one to this number without a
/// check, and then panics in a build that checks for overflow. Sizes below [`UNPACKED_LIMIT`] never contain
/// this number.
fn overflows_footer(tail: &[u8]) -> bool {
    tail.windows(4).any(|bytes| bytes == [0xff; 4])
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;
    use crate::elf::{
        TableKind,
        fixture::{Fixture, PROGRAM},
    };

    /// A stripped program that contains its local symbols, compressed as in Fedora's packages.
    pub(in crate::elf) fn packed_program(fixture: &Fixture) -> Vec<u8> {
        fixture.compile("packed.c", PROGRAM, "");
        fixture.run("objcopy", &["--only-keep-debug", "packed", "packed.debug"]);
        fixture.run(
            "objcopy",
            &[
                "-S",
                "--remove-section",
                ".comment",
                "packed.debug",
                "packed.mini",
                "--keep-symbol=local",
                "--keep-symbol=marked",
            ],
        );
        fixture.run("xz", &["--keep", "packed.mini"]);
        fixture.run("strip", &["packed"]);
        fixture.run("objcopy", &["--add-section", ".gnu_debugdata=packed.mini.xz", "packed"]);
        fs::read(fixture.path("packed")).unwrap()
    }

    #[test]
    fn packed_symbols_are_found() {
        let fixture = Fixture::new();
        let file = ElfFile::from_bytes(packed_program(&fixture), "packed").unwrap();
        let functions = file.functions().unwrap();
        assert_eq!(functions.warnings(), [""; 0]);
        assert!(functions.tables().contains(&TableKind::MiniDebugInfo));
        for name in ["local", "marked"] {
            let function =
                functions.functions().iter().find(|f| f.names.canonical().as_str() == name).unwrap();
            assert_eq!(function.names.canonical().table(), TableKind::MiniDebugInfo);
            let mut code = vec![0; function.size as usize];
            assert_eq!(file.read_code(function.address, &mut code).unwrap(), code.len());
            let constant: u32 = if name == "local" { 0x10ca1 } else { 0x51ee_7b0b };
            assert!(code.windows(4).any(|window| window == constant.to_le_bytes()), "{name}");
        }
    }

    #[test]
    fn sizes_are_those_that_xz_lists() {
        let fixture = Fixture::new();
        // The streams have several blocks, chunks that are not compressed, and all kinds of checks.
        let mut noise = 1_u32;
        let bytes: Vec<u8> = (0..3_000_000_u32)
            .map(|position| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if position % 700_000 < 300_000 { (noise >> 24) as u8 } else { 0 }
            })
            .collect();
        fs::write(fixture.path("data"), &bytes).unwrap();
        for options in [
            &["--check=crc64"][..],
            &["--check=none"],
            &["--check=crc32", "--block-size=1MiB"],
            &["--check=sha256"],
        ] {
            let mut arguments = vec!["--keep", "--force"];
            arguments.extend(options);
            arguments.push("data");
            fixture.run("xz", &arguments);
            let packed = fs::read(fixture.path("data.xz")).unwrap();
            assert_eq!(unpacked_size(&packed), Some(bytes.len() as u64), "{options:?}");
            for length in 0..packed.len().min(200) {
                assert_eq!(unpacked_size(&packed[..length]), None);
            }
        }
    }

    #[test]
    fn a_footer_that_overflows_is_refused() {
        // A fuzzer found this input. Ten bytes before its end, it has the length of the index, minus one.
        let bytes = include_bytes!("mini_debug_info/backward-size");
        assert_eq!(unpacked_size(bytes), None);
        let whole = include_bytes!("mini_debug_info/symbols");
        assert_eq!(unpacked_size(whole), Some(1968));
    }

    #[test]
    fn what_cannot_be_unpacked_is_a_warning() {
        let fixture = Fixture::new();
        let file = ElfFile::open(&fixture.compile("program.c", PROGRAM, "")).unwrap();
        // This is 128 MiB of zeros in 20 KB.
        fixture.run("sh", &["-c", "head -c 134217728 /dev/zero | xz -0 > bomb.xz"]);
        fs::write(fixture.path("text"), "no ELF file").unwrap();
        fixture.run("xz", &["text"]);
        for (name, reason) in
            [("bomb.xz", "more than"), ("text.xz", "is not an ELF file"), ("program", "not an xz stream")]
        {
            let error = unpack(&file, &fs::read(fixture.path(name)).unwrap()).unwrap_err();
            assert!(matches!(error.kind, ElfErrorKind::MiniDebugInfo(_)));
            assert!(error.to_string().contains(reason), "{error}");
        }
        fixture.run("objcopy", &["--add-section", ".gnu_debugdata=text.xz", "program", "broken"]);
        let functions = ElfFile::open(&fixture.path("broken")).unwrap().functions().unwrap();
        assert_eq!(functions.warnings().len(), 1);
        assert!(!functions.functions().is_empty());
    }
}
