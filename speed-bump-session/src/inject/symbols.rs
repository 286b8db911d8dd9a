//! Finds the process's `dlopen`, and pieces of the process's own code for remote calls.

use std::io::Read as _;

use object::{
    LittleEndian,
    read::elf::{ElfFile64, Sym as _},
};

use super::{InjectError, arch};
use crate::{
    elf::ElfFile,
    process::{MappedFile, Process},
    units::VirtualAddress,
};

/// How a process loads a library at run time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dlopen {
    pub(super) function: VirtualAddress,
    pub(super) flags: u64,
}

/// What we have found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbols {
    pub(super) dlopen: Dlopen,
    pub(super) code: arch::Code,
}

/// Flags of `dlopen`: resolve all symbols now, keep them local, and never unload. glibc and musl have the
/// same values, except for the last one, which musl does not need.
const FLAGS: u64 = (libc::RTLD_NOW | libc::RTLD_NODELETE) as u64;
/// `__RTLD_DLOPEN`: glibc's own `dlopen` adds it when it calls its internal function (include/dlfcn.h).
const INTERNAL_DLOPEN: u64 = 0x8000_0000;
/// The most bytes of code in one file that we search.
const CODE_LIMIT: u64 = 16 << 20;
/// The most bytes of one file that we read for its symbols. C libraries have two million bytes.
const FILE_LIMIT: u64 = 64 << 20;
/// How many bytes we search at a time: the pieces of code are mostly near the start.
const PIECE_BYTES: u64 = 64 << 10;
/// How many bytes two parts overlap. A piece of code may lie across their border, and pieces are shorter than
/// this overlap.
const OVERLAP_BYTES: u64 = 16;

/// Finds `dlopen` and the pieces of code.
pub(super) fn find(process: &Process) -> Result<Symbols, InjectError> {
    let pid = process.pid();
    let mappings = process.mappings()?;
    let mut dlopen = None;
    let mut gadgets = arch::Gadgets::default();
    let mut looked = Vec::new();
    // glibc has dlopen in libc since 2.34, and in libdl before. If libdl is not loaded, glibc's libc has an
    // internal dlopen. musl has dlopen in libc, which is also its loader.
    let libraries = mappings.files.iter().filter(|file| is_library(file));
    for file in libraries {
        looked.push(file.path_in_process.display().to_string());
        let opened = file.open(process)?;
        let copy = opened.file().try_clone().map_err(|source| InjectError::System {
            pid,
            what: "duplicating a descriptor",
            source,
        })?;
        let elf = ElfFile::from_file(copy, &file.path_in_process)?;
        let Some(bias) = bias(file, &elf) else { continue };
        // Reads the whole file at once: reading name by name takes a hundred times as long.
        let mut bytes = Vec::new();
        let read = opened.file().take(FILE_LIMIT).read_to_end(&mut bytes);
        read.map_err(|source| super::system(process, "reading the C library", source))?;
        let address = |name: &str| exported(bytes.as_slice(), name).map(|at| bias.to_process(at));
        if let Some(function) = address("dlopen") {
            dlopen = Some(Dlopen { function, flags: FLAGS });
        } else if let Some(function) = address("__libc_dlopen_mode") {
            dlopen = dlopen.or(Some(Dlopen { function, flags: FLAGS | INTERNAL_DLOPEN }));
        }
        search(&elf, bias, &mut gadgets)?;
    }
    let looked =
        if looked.is_empty() { "no C library among its mappings".to_owned() } else { looked.join(", ") };
    let Some(dlopen) = dlopen else { return Err(InjectError::NoDynamicLoader { pid, looked }) };
    let code = gadgets.complete().ok_or(InjectError::NoGadgets { pid, looked })?;
    Ok(Symbols { dlopen, code })
}

/// Whether this file has the name of one of these libraries. All programs find the libraries by these names.
fn is_library(file: &MappedFile) -> bool {
    let name = file.path_in_process.file_name().unwrap_or_default().to_string_lossy();
    let known = ["libc.so", "libc-2.", "libdl.so", "libdl-2.", "ld-musl-", "libc.musl-"];
    known.iter().any(|prefix| name.starts_with(prefix))
}

/// The load bias of a mapped file.
pub(super) fn bias(file: &MappedFile, elf: &ElfFile) -> Option<crate::elf::LoadBias> {
    let range = file.executable_ranges().next()?;
    elf.segments().bias_of_mapping(range.start, range.offset, true)
}

/// The address of a function that a file exports, as in the file's headers. We do not read other symbol
/// tables: they are long, and dynamic linking only uses exported symbols.
pub(crate) fn exported<'data, R: object::ReadRef<'data>>(data: R, name: &str) -> Option<VirtualAddress> {
    let file = ElfFile64::<LittleEndian, R>::parse(data).ok()?;
    let symbols = file.elf_dynamic_symbol_table();
    let found = symbols.iter().find(|symbol| {
        !symbol.is_undefined(LittleEndian)
            && symbol.st_type() == object::elf::STT_FUNC
            && symbol.name(LittleEndian, symbols.strings()) == Ok(name.as_bytes())
    })?;
    Some(VirtualAddress(found.st_value(LittleEndian)))
}

fn search(elf: &ElfFile, bias: crate::elf::LoadBias, gadgets: &mut arch::Gadgets) -> Result<(), InjectError> {
    for segment in elf.segments().iter().filter(|segment| segment.executable) {
        let length = segment.file_size.min(CODE_LIMIT);
        let mut offset = 0;
        while offset < length && gadgets.complete().is_none() {
            let piece = (length - offset).min(PIECE_BYTES + OVERLAP_BYTES);
            let mut code = vec![0; usize::try_from(piece).unwrap_or(0)];
            let address = VirtualAddress(segment.address.0 + offset);
            let read = elf.read_code(address, &mut code)?;
            gadgets.search(bias.to_process(address), code.get(..read).unwrap_or_default());
            offset += PIECE_BYTES;
        }
    }
    Ok(())
}
