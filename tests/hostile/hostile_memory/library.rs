//! Libraries of nobody's, and a process of nobody's that loads one.

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
};

use object::{LittleEndian, elf, read::elf::FileHeader as _};
use speed_bump_testing::Fixture;

use super::NOBODY;

/// Bytes of a debug file that is nearly all holes.
const HOLES: u64 = (4 << 30) - 4096;

type Header = elf::FileHeader64<LittleEndian>;
type Section = elf::SectionHeader64<LittleEndian>;

/// A library with functions `work_0`, `work_1` and so on, beside a fixture's program.
pub(crate) fn make(fixture: &Fixture, functions: usize) -> PathBuf {
    let text: String = (0..functions)
        .map(|number| format!("int work_{number}(int x) {{ return x > {number} ? x * {number} : -x; }}\n"))
        .collect();
    let made = Fixture::compile_text(&text, &["-O1", "-shared", "-fPIC"]).unwrap();
    let library = fixture.folder().join("libwork.so");
    fs::copy(made.program(), &library).unwrap();
    chown(&library, Some(NOBODY), Some(NOBODY)).unwrap();
    library
}

/// A library, and copies of it that are stripped: each names a debug file of its own, of 4 GiB of holes,
/// which could be made sure of by its checksum alone.
pub(crate) fn linked_to_holes(fixture: &Fixture, copies: usize) -> (PathBuf, Vec<String>) {
    let text = "int work_1(int x) { return x > 1 ? x * 3 : -x; }\n";
    let made = Fixture::compile_text(text, &["-O1", "-shared", "-fPIC", "-Wl,--build-id=none"]).unwrap();
    let library = fixture.folder().join("libwork.so");
    fs::copy(made.program(), &library).unwrap();
    let copy = |number: usize| {
        let copy = fixture.folder().join(format!("libcopy{number}.so"));
        let debug = fixture.folder().join(format!("libcopy{number}.debug"));
        let objcopy = |arguments: &[&str]| {
            assert!(Command::new("objcopy").args(arguments).status().unwrap().success(), "{arguments:?}");
        };
        let (from, copy, debug) = (library.display(), copy.display(), debug.display());
        objcopy(&["--only-keep-debug", &from.to_string(), &debug.to_string()]);
        objcopy(&[
            "--strip-all",
            &format!("--add-gnu-debuglink={debug}"),
            &from.to_string(),
            &copy.to_string(),
        ]);
        fs::OpenOptions::new().write(true).open(debug.to_string()).unwrap().set_len(HOLES).unwrap();
        copy.to_string()
    };
    let copies = (0..copies).map(copy).collect();
    (library, copies)
}

/// Makes symbol and string tables of a library claim `size` bytes each, in a file that has as many and holds
/// hardly any of them. The dynamic loader reads no section headers, and loads it as before.
pub(crate) fn inflate(library: &Path, size: u64) {
    let bytes = fs::read(library).unwrap();
    let file = fs::OpenOptions::new().write(true).open(library).unwrap();
    let header = Header::parse(&*bytes).unwrap();
    let first = header.e_shoff.get(LittleEndian);
    let sections = header.section_headers(LittleEndian, &*bytes).unwrap();
    for (number, section) in sections.iter().enumerate() {
        let kind = section.sh_type.get(LittleEndian);
        if matches!(kind, elf::SHT_SYMTAB | elf::SHT_DYNSYM | elf::SHT_STRTAB) {
            let place = first + (number * size_of::<Section>()) as u64 + 32;
            file.write_all_at(&size.to_le_bytes(), place).unwrap();
        }
    }
    file.set_len(size * 2).unwrap();
    let blocks = file.metadata().unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "{blocks} blocks: this file system keeps no sparse files");
}
