#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use object::elf;
use proptest::prelude::*;

use super::*;
use crate::elf::fixture::{Fixture, PROGRAM};

/// Calls every method that reads from the file.
fn interrogate(bytes: Vec<u8>) -> Result<(), ElfError> {
    let file = ElfFile::from_bytes(bytes, "fixture")?;
    let functions = file.functions();
    if let Ok(functions) = &functions {
        for function in functions.functions() {
            assert_eq!(file.segments().code_offset_of(function.address), Some(function.offset));
            let mut code = [0; 16];
            file.read_code(function.address, &mut code)?;
        }
    }
    let usdt = file.usdt_probes();
    let id = file.build_id();
    functions.and(usdt.map(drop)).and(id.map(drop))
}

fn refusal(bytes: &[u8]) -> ElfErrorKind {
    ElfFile::from_bytes(bytes, "fixture").unwrap_err().kind
}

#[test]
fn other_files_are_refused_with_their_reason() {
    use ElfErrorKind as E;
    let fixture = Fixture::new();
    let program = fs::read(fixture.compile("program.c", PROGRAM, "")).unwrap();
    assert!(interrogate(program.clone()).is_ok());

    assert!(matches!(refusal(b""), E::TooShort { length: 0 }));
    assert!(matches!(refusal(b"\x7fEL"), E::TooShort { length: 3 }));
    assert!(matches!(refusal(&program[..63]), E::TooShort { length: 63 }));
    assert!(matches!(refusal(b"#!/bin/sh\n"), E::NotElf));
    assert!(matches!(refusal(&[b'x'; 4096]), E::NotElf));
    let with = |at: usize, value: u8| {
        let mut bytes = program.clone();
        bytes[at] = value;
        refusal(&bytes)
    };
    assert!(matches!(with(4, elf::ELFCLASS32), E::Class32));
    assert!(matches!(with(4, 7), E::Corrupt { .. }));
    assert!(matches!(with(5, elf::ELFDATA2MSB), E::BigEndian));
    assert!(matches!(with(6, 9), E::Corrupt { .. }));
    assert!(matches!(with(18, elf::EM_RISCV as u8), E::WrongMachine { found: elf::EM_RISCV, .. }));
    assert!(matches!(with(16, elf::ET_CORE as u8), E::NotLoadable("a core dump")));
    let object = fixture.compile("object.c", PROGRAM, "-c");
    let object = ElfFile::open(&object).unwrap_err().kind;
    assert!(matches!(object, E::NotLoadable("an object file or kernel module")));
    // Types and machines take two bytes.
    assert!(matches!(with(17, 0xfe), E::NotLoadable("an ELF file of unknown type")));
    let wrong = u16::from(program[18]) | 0x100;
    assert!(matches!(with(19, 1), E::WrongMachine { found, .. } if found == wrong));
    // This machine is supported, but it is not ours.
    let other = if cfg!(target_arch = "x86_64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
    assert!(matches!(with(18, other as u8), E::WrongMachine { found, .. } if found == other));
}

#[test]
fn a_file_for_another_machine_is_told_from_this_machine() {
    let wrong = |host| ElfErrorKind::WrongMachine { found: elf::EM_RISCV, host }.to_string();
    let message = "is for machine 0xf3 (EM_*), this machine is";
    assert_eq!(wrong(Some(Machine::X86_64)), format!("{message} x86-64"));
    assert_eq!(wrong(Some(Machine::Aarch64)), format!("{message} aarch64"));
    assert_eq!(wrong(None), format!("{message} not supported"));
}

#[test]
fn a_header_alone_is_a_file_without_anything() {
    let fixture = Fixture::new();
    let program = fs::read(fixture.compile("program.c", PROGRAM, "")).unwrap();
    let mut header = without_sections(program[..64].to_vec());
    // The file has no program headers, and an invalid offset for them does not matter.
    header[32..40].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    header[56..58].fill(0);
    let functions = ElfFile::from_bytes(header.clone(), "header").unwrap().functions().unwrap();
    assert!(functions.functions().is_empty() && functions.refused().is_empty());
    // The first section header would have the number of section headers, but does not exist.
    header[40..48].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    assert!(matches!(refusal(&header), ElfErrorKind::Truncated { what: "section header table", .. }));
}

#[test]
fn a_loadable_segment_that_is_cut_is_refused() {
    let fixture = Fixture::new();
    let bytes = without_sections(fs::read(fixture.compile("program.c", PROGRAM, "")).unwrap());
    let file = ElfFile::from_bytes(bytes.clone(), "bare").unwrap();
    let end = file.segments().iter().map(|segment| segment.offset.0 + segment.file_size).max().unwrap();
    let end = usize::try_from(end).unwrap();
    assert!(ElfFile::from_bytes(&bytes[..end], "whole").is_ok());
    let cut = refusal(&bytes[..end - 1]);
    assert!(matches!(cut, ElfErrorKind::Truncated { what: "loadable segment", .. }), "{cut}");
}

#[test]
fn tables_have_a_limit_each_and_one_together() {
    use ElfErrorKind as E;
    let fixture = Fixture::new();
    let file = ElfFile::open(&fixture.compile("program.c", PROGRAM, "")).unwrap();
    let cache = file.cache();
    let check = |size, limit| cache.check_size(&file, size, limit, "table").map_err(|error| error.kind);
    assert!(check(10, 10).is_ok());
    assert!(matches!(check(11, 10), Err(E::TooLarge { what: "table", size: 11, limit: 10 })));
    assert!(check(file.room - 10, u64::MAX).is_ok(), "what was refused does not count");
    assert!(check(0, 10).is_ok());
    assert!(matches!(check(2, 10), Err(E::Sparse { what: "table", .. })));
}

#[test]
fn special_files_are_refused_unopened() {
    use ElfErrorKind as E;
    let fixture = Fixture::new();
    fixture.run("mkfifo", &["pipe"]);
    let kind = |path: &Path| ElfFile::open(path).unwrap_err().kind;
    assert!(matches!(kind(&fixture.path("pipe")), E::Special("pipe")));
    assert!(matches!(kind(fixture.root()), E::Special("directory")));
    assert!(matches!(kind(Path::new("/dev/zero")), E::Special("character device")));
    let missing = ElfFile::open(&fixture.path("missing")).unwrap_err();
    assert!(matches!(missing.kind, E::Open(_)));
    assert!(missing.to_string().contains("missing: cannot be opened: No such file"), "{missing}");
}

#[test]
fn paths_of_a_process_stay_below_its_root() {
    let fixture = Fixture::new();
    fixture.compile("program.c", PROGRAM, "");
    fixture.run("mkdir", &["-p", "root/bin"]);
    fixture.run("cp", &["program", "root/bin/inside"]);
    fixture.run("ln", &["-s", "/bin/inside", "root/link"]);
    fixture.run("ln", &["-s", fixture.path("program").to_str().unwrap(), "root/out"]);
    let root = Root::open(&fixture.path("root")).unwrap();
    assert!(ElfFile::open_in(&root, Path::new("/bin/inside")).is_ok());
    assert!(ElfFile::open_in(&root, Path::new("/link")).is_ok());
    for path in ["/out", "/../program", "/bin/../../program"] {
        let kind = ElfFile::open_in(&root, Path::new(path)).unwrap_err().kind;
        assert!(matches!(kind, ElfErrorKind::Open(_)), "{path}");
    }
    assert!(matches!(
        ElfFile::open_in(&root, Path::new("/bin")).unwrap_err().kind,
        ElfErrorKind::Special("directory")
    ));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let fixture = Fixture::new();
    let program = fs::read(fixture.compile("program.c", PROGRAM, "")).unwrap();
    let word = |at: usize| u64::from_le_bytes(program[at..at + 8].try_into().unwrap()) as usize;
    let (program_headers, section_headers) = (word(32), word(40));
    let mut boundaries: Vec<usize> = (0..=13).map(|n| program_headers + n * 56).collect();
    let sections = (program.len() - section_headers) / 64;
    for section in 0..sections {
        let header = section_headers + section * 64;
        boundaries.extend([header, word(header + 24), word(header + 24) + word(header + 32)]);
    }
    boundaries.extend((0..program.len()).step_by(61));
    for boundary in boundaries {
        for length in [boundary.saturating_sub(1), boundary, boundary + 1] {
            // GNU ld writes the section headers at the end of a file, so every cut affects them.
            if length < program.len() {
                let error = ElfFile::from_bytes(&program[..length], "cut").unwrap_err();
                assert!(
                    matches!(error.kind, ElfErrorKind::Truncated { .. } | ElfErrorKind::TooShort { .. }),
                    "{length}: {error}"
                );
            }
        }
    }
}

#[test]
fn a_file_that_shrinks_while_open_is_an_error() {
    let fixture = Fixture::new();
    let path = fixture.compile("program.c", PROGRAM, "");
    let file = ElfFile::open(&path).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let error = file.functions().unwrap_err();
    assert!(matches!(error.kind, ElfErrorKind::Changed), "{error}");
    assert!(matches!(file.usdt_probes().unwrap_err().kind, ElfErrorKind::Changed));
}

#[test]
fn huge_claims_are_refused_before_memory_is_taken() {
    let fixture = Fixture::new();
    let path = fixture.compile("program.c", PROGRAM, "");
    let mut bytes = fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let section_headers = word(40);
    let symtab = (0..(bytes.len() - section_headers) / 64)
        .map(|section| section_headers + section * 64)
        .find(|header| bytes[header + 4] == elf::SHT_SYMTAB as u8)
        .unwrap();
    bytes[symtab + 32..symtab + 40].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let in_memory = ElfFile::from_bytes(bytes.clone(), "claim").unwrap().functions().unwrap_err();
    assert!(matches!(in_memory.kind, ElfErrorKind::Truncated { what: "symbol table", .. }), "{in_memory}");
    // A sparse file can have the size that the headers claim.
    fs::write(&path, bytes).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 41).unwrap();
    let sparse = ElfFile::open(&path).unwrap().functions().unwrap_err();
    assert!(matches!(sparse.kind, ElfErrorKind::TooLarge { what: "symbol table", .. }), "{sparse}");
}

#[test]
fn build_id_and_code_are_those_of_other_tools() {
    let fixture = Fixture::new();
    let path = fixture.compile("program.c", PROGRAM, "-Wl,--build-id=sha1");
    let file = ElfFile::open(&path).unwrap();
    let id: String = file.build_id().unwrap().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(fixture.run("readelf", &["-n", "program"]).contains(&format!("Build ID: {id}")));
    let without = fixture.compile("without.c", PROGRAM, "-Wl,--build-id=none");
    assert_eq!(ElfFile::open(&without).unwrap().build_id().unwrap(), None);

    let functions = file.functions().unwrap();
    let marked = functions.functions().iter().find(|f| f.names.iter().any(|n| n.as_str() == "marked"));
    let marked = marked.unwrap();
    let mut code = vec![0; marked.size as usize];
    assert_eq!(file.read_code(marked.address, &mut code).unwrap(), code.len());
    assert!(code.windows(4).any(|window| window == 0x51ee_7b0b_u32.to_le_bytes()));
    assert_eq!(file.read_code(VirtualAddress(0), &mut code).unwrap(), 0);
    // Nothing is read beyond the end of the segment.
    let segment = *file.segments().iter().find(|segment| segment.executable).unwrap();
    let last = VirtualAddress(segment.address.0 + segment.file_size - 3);
    assert_eq!(file.read_code(last, &mut code).unwrap(), 3);
}

fn samples() -> &'static [Vec<u8>] {
    static SAMPLES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    SAMPLES.get_or_init(|| {
        let fixture = Fixture::new();
        let program = fixture.compile("program.c", PROGRAM, "");
        let library =
            fixture.compile("library.c", PROGRAM, "-shared -fPIC -Wl,--default-symver -Wl,--hash-style=both");
        let without = fixture.compile("without.c", PROGRAM, "-no-pie");
        let mut bytes: Vec<_> = [program, library, without].map(|path| fs::read(path).unwrap()).into();
        bytes.push(crate::elf::mini_debug_info::tests::packed_program(&fixture));
        bytes.push(without_sections(bytes[1].clone()));
        bytes
    })
}

/// Removes the section headers, as `sstrip` does.
pub(in crate::elf) fn without_sections(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn flipped_bits_never_panic(
        sample in 0_usize..5, flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..20),
    ) {
        let mut bytes = samples()[sample].clone();
        for (position, bit) in flips {
            let position = position.index(bytes.len());
            bytes[position] ^= 1 << bit;
        }
        interrogate(bytes).ok();
    }

    #[test]
    fn flipped_headers_never_panic(
        sample in 0_usize..5,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = samples()[sample].clone();
        let sections = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let headers: Vec<usize> = (16..900).chain(sections..bytes.len()).collect();
        for (position, value) in flips {
            bytes[headers[position.index(headers.len())]] = value;
        }
        interrogate(bytes).ok();
    }
}
