//! The few questions that recognising an interpreter asks of an ELF file.
//!
//! Read piece by piece, not mapped: a file that shrinks meanwhile is an error and not a SIGBUS.

use std::fs::File;

use object::{
    Endianness, ReadRef as _, elf,
    read::{
        Error, FileKind, ReadCache,
        elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _, Sym as _},
    },
};
use object::{Object as _, ObjectSection as _};

type Cache<'data> = &'data ReadCache<&'data File>;

/// A symbol that the file defines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) address: u64,
    pub(super) size: u64,
}

/// An ELF file of 64 bits.
pub(super) struct Image<'data> {
    data: Cache<'data>,
    file: ElfFile64<'data, Endianness, Cache<'data>>,
}

impl<'data> Image<'data> {
    /// `None` if this is no 64-bit ELF file, or one without code of its own (such as a core).
    pub(super) fn parse(data: Cache<'data>) -> Result<Option<Self>, Error> {
        if !matches!(FileKind::parse(data), Ok(FileKind::Elf64)) {
            return Ok(None);
        }
        let file = ElfFile64::parse(data)?;
        let kind = file.elf_header().e_type(file.endian());
        Ok(matches!(kind, elf::ET_DYN | elf::ET_EXEC).then_some(Self { data, file }))
    }

    /// The symbols of these names, in their order.
    pub(super) fn symbols(&self, names: &[&str]) -> Vec<Option<Symbol>> {
        let mut found = vec![None; names.len()];
        self.each_symbol(|name, symbol| {
            for (slot, wanted) in found.iter_mut().zip(names) {
                if slot.is_none() && name == wanted.as_bytes() {
                    *slot = Some(symbol);
                }
            }
        });
        found
    }

    /// Whether any symbol starts so.
    pub(super) fn defines_prefix(&self, prefix: &str) -> bool {
        let mut found = false;
        self.each_symbol(|name, _| found |= name.starts_with(prefix.as_bytes()));
        found
    }

    /// Exported symbols; those of a program also where it exports none of CPython's, as static ones do.
    /// A library's private symbols are left alone: they are many, and an interpreter nobody can link to
    /// is no interpreter.
    fn each_symbol(&self, mut visit: impl FnMut(&[u8], Symbol)) {
        let endian = self.file.endian();
        let tables = [
            Some(self.file.elf_dynamic_symbol_table()),
            self.is_program().then(|| self.file.elf_symbol_table()),
        ];
        for table in tables.into_iter().flatten() {
            for symbol in table.iter().filter(|symbol| !symbol.is_undefined(endian)) {
                let Ok(name) = symbol.name(endian, table.strings()) else { continue };
                visit(name, Symbol { address: symbol.st_value(endian), size: symbol.st_size(endian) });
            }
        }
    }

    fn is_program(&self) -> bool {
        let endian = self.file.endian();
        self.file.elf_header().e_type(endian) == elf::ET_EXEC
            || self.file.elf_program_headers().iter().any(|header| header.p_type(endian) == elf::PT_INTERP)
            || self.dynamic(elf::DT_FLAGS_1).is_some_and(|flags| flags & u64::from(elf::DF_1_PIE) != 0)
    }

    /// The file's bytes at an address; `None` where the file holds none.
    pub(super) fn read<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        self.data.read_bytes_at(self.offset(address)?, N as u64).ok()?.try_into().ok()
    }

    /// Where the byte at an address lies in the file.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        let endian = self.file.endian();
        self.file.elf_program_headers().iter().find_map(|header| {
            let within = address.checked_sub(header.p_vaddr(endian))?;
            let loaded = header.p_type(endian) == elf::PT_LOAD && within < header.p_filesz(endian);
            loaded.then(|| header.p_offset(endian).checked_add(within))?
        })
    }

    /// The library's own name for itself.
    pub(super) fn soname(&self) -> Option<&str> {
        let strings = self.file.elf_dynamic_symbol_table().strings();
        let offset = u32::try_from(self.dynamic(elf::DT_SONAME)?).ok()?;
        std::str::from_utf8(strings.get(offset).ok()?).ok()
    }

    fn dynamic(&self, tag: i64) -> Option<u64> {
        let endian = self.file.endian();
        let sections = self.file.elf_section_table();
        let (entries, _) = sections.dynamic(endian, self.data).ok()??;
        entries.iter().find(|entry| entry.d_tag(endian) == tag).map(|entry| entry.d_val(endian))
    }

    /// The constants, unless they are more than `limit` bytes.
    pub(super) fn read_only_data(&self, limit: u64) -> Option<&'data [u8]> {
        let section = self.file.section_by_name(".rodata").filter(|section| section.size() <= limit)?;
        section.data().ok()
    }

    /// Whether `.note.stapsdt` describes this probe (SystemTap, "UserSpaceProbeImplementation").
    pub(super) fn has_probe(&self, provider: &str, name: &str) -> bool {
        let endian = self.file.endian();
        let sections = self.file.elf_section_table();
        let Some((_, section)) = sections.section_by_name(endian, b".note.stapsdt") else { return false };
        let Ok(Some(mut notes)) = object::read::elf::SectionHeader::notes(section, endian, self.data) else {
            return false;
        };
        let wanted = [provider.as_bytes(), b"\0", name.as_bytes(), b"\0"].concat();
        while let Ok(Some(note)) = notes.next() {
            // Three addresses come first: location, base, semaphore.
            let is_probe = note.name() == b"stapsdt" && note.n_type(endian) == 3;
            if is_probe && note.desc().get(24..).is_some_and(|strings| strings.starts_with(&wanted)) {
                return true;
            }
        }
        false
    }
}
