#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;
use crate::elf::{
    ElfErrorKind,
    file::tests::without_sections,
    fixture::{Fixture, PROGRAM},
};

#[test]
fn relocations_are_those_that_the_dynamic_loader_applies() {
    let fixture = Fixture::new();
    // With `-q` the file also keeps relocations that the linker has already applied.
    let path = fixture.compile("program.c", PROGRAM, "-pie -fPIE -Wl,-q -Wl,-z,lazy");
    let bytes = fs::read(&path).unwrap();
    let count = |bytes: Vec<u8>| {
        let file = ElfFile::from_bytes(bytes, "program").unwrap();
        let cache = file.cache();
        let tables = Tables::read(&file, &cache).unwrap();
        let found = tables.dynamic_relocations().unwrap();
        for (section, _) in found.iter().filter(|(section, _)| *section != 0) {
            assert_eq!(tables.section(*section).unwrap().sh_type(LittleEndian), elf::SHT_DYNSYM);
        }
        found.iter().map(|(_, relocations)| relocations.len()).collect::<Vec<_>>()
    };
    // The sections are .rela.dyn and .rela.plt.
    let with_sections = count(bytes.clone());
    assert_eq!(with_sections.len(), 2);
    assert!(!with_sections.contains(&0));
    assert_eq!(count(without_sections(bytes)), with_sections);
}

#[test]
fn code_that_is_not_loaded_is_no_code() {
    let fixture = Fixture::new();
    let source = format!("{PROGRAM}__asm__(\".section .unloaded,\\\"x\\\"\\n.8byte 0\\n.text\\n\");");
    let elf = ElfFile::open(&fixture.compile("program.c", &source, "-no-pie -fno-pie")).unwrap();
    // A section whose address is 0 is not loaded, so it is no code.
    assert!(!elf.code_sections().may_be_code(VirtualAddress(0)));
    let functions = elf.functions().unwrap();
    assert!(elf.code_sections().may_be_code(functions.functions()[0].address));
}

/// A file that has only `count` code sections, after a section with their names. All names are empty.
fn with_code_sections(header: &[u8], count: u16) -> Vec<u8> {
    let mut bytes = without_sections(header[..64].to_vec());
    bytes[32..40].fill(0);
    bytes[56..58].fill(0);
    bytes[40..48].copy_from_slice(&64_u64.to_le_bytes());
    for (at, value) in [(58, 64), (60, count + 2), (62, 1)] {
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    // First come section 0, and the section with the names: it is the byte at offset 63, which is 0.
    for (kind, offset, size) in [(elf::SHT_NULL, 0_u64, 0_u64), (elf::SHT_STRTAB, 63, 1)] {
        bytes.extend([0, kind].map(u32::to_le_bytes).as_flattened());
        bytes.extend([0, 0, offset, size, 0, 0, 0].map(u64::to_le_bytes).as_flattened());
    }
    for _ in 0..count {
        let flags = u64::from(elf::SHF_ALLOC | elf::SHF_EXECINSTR);
        bytes.extend([0, elf::SHT_NOBITS].map(u32::to_le_bytes).as_flattened());
        bytes.extend([flags, 0x1000, 0, 16, 0, 0, 0].map(u64::to_le_bytes).as_flattened());
    }
    bytes
}

#[test]
fn sections_of_code_are_remembered_up_to_a_number() {
    let fixture = Fixture::new();
    let header = fs::read(fixture.compile("program.c", PROGRAM, "")).unwrap();
    let open = |count| ElfFile::from_bytes(with_code_sections(&header, count), "sections");
    assert!(open(4_096).unwrap().code_sections().may_be_code(VirtualAddress(0x100f)));
    let refused = open(4_097).unwrap_err();
    assert!(matches!(refused.kind, ElfErrorKind::Corrupt { .. }), "{refused}");
}
