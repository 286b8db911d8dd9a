#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fs};

use super::*;
use crate::elf::{
    ElfErrorKind,
    file::tests::without_sections,
    fixture::{Fixture, PROGRAM},
};

#[test]
fn symbols_are_visited_as_their_table_has_them() {
    let fixture = Fixture::new();
    let elf = ElfFile::open(&fixture.compile("program.c", PROGRAM, "-no-pie -fno-pie")).unwrap();
    let table = |kind| {
        let mut found = BTreeMap::new();
        let visit = |symbol: RawSymbol<'_>| {
            let name = String::from_utf8_lossy(symbol.name).into_owned();
            found.insert(name, (symbol.address, symbol.size, symbol.in_code));
        };
        elf.each_symbol(kind, visit).unwrap();
        found
    };
    let symbols = table(TableKind::Symbols);
    let functions = elf.functions().unwrap();
    let mut all = functions.functions().iter();
    let marked = all.find(|function| function.names.candidates().any(|name| name == "marked")).unwrap();
    assert_eq!(symbols["marked"], (marked.address, marked.size, true));
    for (name, in_code) in [
        ("local", true),
        // A label in a section of code.
        ("untyped", true),
        // A label in a section of data.
        ("data_start", false),
        ("counter", false),
        ("table", false),
        ("constant", false),
    ] {
        assert_eq!(symbols[name].2, in_code, "{name}");
    }
    // In this table, imported names have a suffix (`printf@GLIBC_2.2.5`).
    assert!(!symbols.keys().any(|name| name.starts_with("printf")));
    assert!(!table(TableKind::Dynamic).contains_key("marked"));
    assert!(table(TableKind::DebugFile).is_empty());
}

#[test]
fn sections_and_bytes_are_where_readelf_says() {
    let fixture = Fixture::new();
    let path = fixture.compile("program.c", PROGRAM, "-no-pie -fno-pie");
    let (elf, bytes) = (ElfFile::open(&path).unwrap(), fs::read(&path).unwrap());
    let listed = fixture.run("readelf", &["-SW", "program"]);
    let row = listed.lines().find(|line| line.contains(" .rodata ")).unwrap();
    let fields: Vec<_> = row.split(".rodata").nth(1).unwrap().split_ascii_whitespace().collect();
    let [address, offset, size] = [1, 2, 3].map(|at: usize| u64::from_str_radix(fields[at], 16).unwrap());
    let expected = &bytes[offset as usize..(offset + size) as usize];

    assert_eq!(elf.section_range(b".rodata").unwrap(), Some(address..address + size));
    assert_eq!(elf.section_range(b".none").unwrap(), None);
    assert_eq!(elf.section(b".rodata", size).unwrap().as_deref(), Some(expected));
    let refused = elf.section(b".rodata", size - 1).unwrap_err();
    assert!(matches!(refused.kind, ElfErrorKind::TooLarge { .. }), "{refused}");
    assert_eq!(elf.section(b".none", 1).unwrap(), None);

    let read = |address, count| {
        let mut buffer = vec![0; count];
        elf.read_at(VirtualAddress(address), &mut buffer).unwrap().then_some(buffer)
    };
    assert_eq!(read(address, size as usize).as_deref(), Some(expected));
    assert_eq!(read(address + 1, 1).as_deref(), Some(&expected[1..2]));
    assert_eq!(read(0, 1), None);
    let segment = *elf.segments().iter().find(|segment| segment.executable).unwrap();
    let end = segment.address.0 + segment.file_size;
    assert!(read(end - 3, 3).is_some());
    assert_eq!(read(end - 3, 4), None);
}

#[test]
fn bytes_of_two_segments_are_not_read_as_one() {
    let fixture = Fixture::new();
    // A file with two segments that are next to each other in memory.
    let script = "PHDRS { a PT_LOAD; b PT_LOAD; }
        SECTIONS { .a 0x400000 : AT(0x400000) { *(.a) } :a
                   .b 0x400008 : AT(0x500008) { *(.b) } :b /DISCARD/ : { *(*) } }";
    fs::write(fixture.path("script.ld"), script).unwrap();
    let source = ".section .a,\"a\"\n.8byte 1\n.section .b,\"a\"\n.8byte 2\n";
    let options = "-nostdlib -static -no-pie -Wl,-T,script.ld -Wl,-e,0 -Wl,--build-id=none -Wl,-n";
    let mut bytes = fs::read(fixture.compile("two.s", source, options)).unwrap();
    // Moves the second segment in the file: its program header gets the offset of the first segment.
    let offsets = [64 + 8, 64 + 56 + 8];
    bytes.copy_within(offsets[0]..offsets[0] + 8, offsets[1]);
    let elf = ElfFile::from_bytes(bytes, "two").unwrap();
    let [first, second] = [0, 1].map(|at| *elf.segments().iter().nth(at).unwrap());
    assert_eq!(first.address.0 + first.file_size, second.address.0);
    assert_eq!(first.offset, second.offset);
    let mut buffer = [0; 8];
    assert!(elf.read_at(first.address, &mut buffer).unwrap());
    assert!(!elf.read_at(VirtualAddress(first.address.0 + 4), &mut buffer).unwrap());
}

#[test]
fn programs_are_told_from_libraries_however_they_are_linked() {
    let fixture = Fixture::new();
    for (name, options, is_program) in [
        ("pie.c", "-pie -fPIE", true),
        ("fixed.c", "-no-pie -fno-pie", true),
        // These programs have no interpreter.
        ("static.c", "-static -no-pie", true),
        ("static_pie.c", "-static-pie -fPIE", true),
        ("shared.c", "-shared -fPIC", false),
        // This library has the same flags as a position-independent program.
        ("now.c", "-shared -fPIC -Wl,-z,now", false),
    ] {
        let elf = ElfFile::open(&fixture.compile(name, PROGRAM, options)).unwrap();
        assert_eq!(elf.is_program().unwrap(), is_program, "{name}");
    }
}

#[test]
fn a_librarys_own_name_is_read() {
    let fixture = Fixture::new();
    let path = fixture.compile("named.c", PROGRAM, "-shared -fPIC -Wl,-soname,libnamed.so.1");
    let bytes = fs::read(&path).unwrap();
    for bytes in [bytes.clone(), without_sections(bytes)] {
        let elf = ElfFile::from_bytes(bytes, "named").unwrap();
        assert_eq!(elf.soname().unwrap().as_deref(), Some("libnamed.so.1"));
    }
    let without = ElfFile::open(&fixture.compile("without.c", PROGRAM, "-shared -fPIC")).unwrap();
    assert_eq!(without.soname().unwrap(), None);
}
