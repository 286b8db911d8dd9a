//! Fuzzes parts of ELF files, and names in them. The fuzz target `elf_file` fuzzes whole files.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::Write as _,
    path::Path,
    sync::LazyLock,
};

use rustix::fs::MemfdFlags;
use tempfile::TempDir;

use crate::{
    elf::{Binding, Effort, ElfFile, Root, SymbolName, TableKind, parse_go_table, unpack_mini_debug_info},
    inject::{
        exported,
        image::{IMAGE, Identity},
    },
    probe::code::CodeFile,
    python::interpreter,
};

/// A valid ELF file, for functions that need one.
static ANY_FILE: LazyLock<Option<ElfFile>> = LazyLock::new(|| ElfFile::from_bytes(IMAGE, "fuzz").ok());

/// Any bytes as a symbol's name: mangled, with a version, or neither.
pub fn names(bytes: &[u8]) {
    let name = SymbolName::new(bytes, None, Binding::Global, TableKind::Symbols);
    for form in name.candidates() {
        // The limit is a hundred times longer than any name that compilers make. We store each form, so its
        // length matters.
        assert!(form.len() <= (1 << 16) + 3 * bytes.len());
    }
    // We print names on the terminal of a root user.
    assert!(!name.as_str().contains(char::is_control));
    assert!(!name.demangled().unwrap_or_default().contains(char::is_control), "{name:?}");
}

/// Any bytes as the notes of a file: USDT probes, the build id, and the version of a helper.
pub fn notes(bytes: &[u8]) {
    let file = around_notes(bytes);
    Identity::read(&file).ok();
    let Ok(elf) = ElfFile::from_bytes(file, "fuzz") else { return };
    elf.build_id().ok();
    let Ok(found) = elf.usdt_probes() else { return };
    for probe in &found.probes {
        assert!(!probe.locations.is_empty());
        for location in &probe.locations {
            assert_eq!(elf.segments().code_offset_of(location.address), Some(location.offset));
            assert!(location.arguments.len() <= bytes.len());
        }
        for text in [&probe.provider, &probe.name] {
            assert!(!text.contains(char::is_control));
        }
    }
}

/// A file without sections. Its segments are code, data, and notes (gABI, "ELF Header", "Program Header").
fn around_notes(notes: &[u8]) -> Vec<u8> {
    const HEADERS: u64 = 64 + 3 * 56;
    let machine = if cfg!(target_arch = "aarch64") { 183_u16 } else { 62 };
    let mut file = Vec::with_capacity(HEADERS as usize + notes.len());
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // In order: type (shared object), machine, version; entry, program headers, section headers; flags; sizes
    // and counts.
    file.extend([3_u16, machine].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(1_u32.to_le_bytes());
    file.extend([0, 64, 0_u64].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(0_u32.to_le_bytes());
    file.extend([64_u16, 56, 3, 64, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    let length = notes.len() as u64;
    // In order: type, flags; offset, address, physical address, size in the file, size in memory, alignment.
    for (kind, flags, words) in [
        (1_u32, 5_u32, [0, 0, 0, 64, 64, 0x1000_u64]),
        (1, 6, [64, 0x1040, 0x1040, 64, 64, 0x1000]),
        (4, 4, [HEADERS, 0x2000, 0x2000, length, length, 4]),
    ] {
        file.extend([kind, flags].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    file.extend(notes);
    file
}

/// Any bytes as `.gnu_debugdata`.
pub fn mini_debug_info(bytes: &[u8]) {
    let Some(file) = ANY_FILE.as_ref() else { return };
    if let Ok(unpacked) = unpack_mini_debug_info(file, bytes) {
        unpacked.functions().ok();
    }
}

/// Any bytes as `.gopclntab`.
pub fn go_table(bytes: &[u8]) {
    for text in [None, Some(0x40_1000)] {
        for function in parse_go_table(bytes, text).unwrap_or_default() {
            assert!(function.name.len() <= bytes.len() && !function.name.contains(&0));
            assert!(function.address.0.checked_add(function.size).is_some());
        }
    }
}

thread_local! {
    /// A root directory for debug files, which all runs share.
    static ROOT: RefCell<Option<(TempDir, Root)>> = const { RefCell::new(None) };
}

/// Any bytes as an ELF file that names separate debug files. The debug file `same`, which this file may name,
/// has the same bytes.
pub fn debug_files(bytes: &[u8]) {
    ROOT.with_borrow_mut(|root| {
        if root.is_none() {
            let folder = tempfile::Builder::new().tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
            *root = folder.ok().and_then(|folder| Root::open(folder.path()).ok().map(|root| (folder, root)));
        }
        let Some((folder, root)) = root else { return };
        let Ok(file) = ElfFile::from_bytes(bytes, "fuzz") else { return };
        if fs::write(folder.path().join("same"), bytes).is_err() {
            return;
        }
        let read = file.functions_with_debug_files(root, Path::new("/fuzz"), &Effort::default());
        let Ok(functions) = read else { return };
        for function in functions.functions() {
            assert_eq!(file.segments().code_offset_of(function.address), Some(function.offset));
        }
    });
}

/// Any bytes as an ELF file: whether it contains a CPython, where its code is, and what it exports.
pub fn python_elf(bytes: &[u8]) {
    exported(bytes, "dlopen");
    let Ok(file) = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).map(File::from) else { return };
    if bytes.is_empty() || (&file).write_all(bytes).is_err() {
        return;
    }
    interpreter::identify(&file, Path::new("libpython3.8.so.1.0")).ok();
    if let Ok(elf) = ElfFile::from_file(file, "fuzz") {
        CodeFile::new(elf).code().ok();
    }
}
