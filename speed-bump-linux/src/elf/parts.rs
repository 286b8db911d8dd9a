//! Reads single parts of a file, for callers that need more than its functions: raw symbols, sections by
//! name, bytes by address.

use std::ops::Range;

use object::{
    LittleEndian, elf,
    read::elf::{ProgramHeader as _, SectionHeader as _},
};

use super::{
    error::ElfError,
    file::{ElfFile, read_failure},
    name::TableKind,
    tables::Tables,
};
use crate::units::{FileOffset, VirtualAddress};

/// A symbol as in its table.
#[derive(Clone, Copy, Debug)]
pub struct RawSymbol<'a> {
    /// The name. A version from the table of versions is not part of it.
    pub name: &'a [u8],
    /// The address of the symbol.
    pub address: VirtualAddress,
    /// The size in bytes; 0 if the file gives none.
    pub size: u64,
    /// Whether the symbol marks code: a function, or a label in a section of code.
    pub in_code: bool,
}

impl ElfFile {
    /// Visits the symbols that one table defines. If there is no such table, visits none.
    ///
    /// # Errors
    /// [`ElfError`] if the tables cannot be read.
    pub fn each_symbol(
        &self,
        table: TableKind,
        mut visit: impl FnMut(RawSymbol<'_>),
    ) -> Result<(), ElfError> {
        let cache = self.cache();
        let tables = Tables::read(self, &cache)?;
        for table in tables.symbol_tables(&[table])? {
            for (index, symbol) in table.symbols.iter().enumerate() {
                let section = symbol.st_shndx.get(LittleEndian);
                let Ok(name) = table.name(symbol) else { continue };
                if section == elf::SHN_UNDEF || index == 0 {
                    continue;
                }
                let address = VirtualAddress(symbol.st_value.get(LittleEndian));
                let in_section = match section {
                    elf::SHN_XINDEX => self.code_sections().may_be_code(address),
                    section => tables.section(section.into()).is_some_and(|section| {
                        let executable = u64::from(elf::SHF_EXECINSTR);
                        section.sh_type(LittleEndian) == elf::SHT_PROGBITS
                            && section.sh_flags(LittleEndian) & executable != 0
                    }),
                };
                let kind = symbol.st_info & 0xf;
                visit(RawSymbol {
                    name,
                    address,
                    size: symbol.st_size.get(LittleEndian),
                    in_code: in_section
                        && matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE),
                });
            }
        }
        Ok(())
    }

    /// The address range of a section, as in the file's headers; `None` if no section has this name.
    ///
    /// # Errors
    /// [`ElfError`] if the headers cannot be read.
    pub fn section_range(&self, name: &[u8]) -> Result<Option<Range<u64>>, ElfError> {
        let cache = self.cache();
        let tables = Tables::read(self, &cache)?;
        Ok(tables.section_named(name).map(|section| {
            let start = section.sh_addr(LittleEndian);
            start..start.saturating_add(section.sh_size(LittleEndian))
        }))
    }

    /// The contents of a section, if it has at most `limit` bytes.
    ///
    /// # Errors
    /// [`ElfError`] if the section cannot be read, or has more bytes.
    pub fn section(&self, name: &[u8], limit: u64) -> Result<Option<Vec<u8>>, ElfError> {
        let cache = self.cache();
        let tables = Tables::read(self, &cache)?;
        let range = tables.section_named(name).and_then(|section| section.file_range(LittleEndian));
        range.map(|range| Ok(tables.limited(range, limit, "section")?.to_owned())).transpose()
    }

    /// Copies the bytes at an address from the file. `false` if the file does not contain all of them.
    ///
    /// # Errors
    /// [`ElfError`] if the file cannot be read.
    pub fn read_at(&self, address: VirtualAddress, buffer: &mut [u8]) -> Result<bool, ElfError> {
        let last = address.0.checked_add(buffer.len().saturating_sub(1) as u64);
        let ends = last.and_then(|last| {
            Some((self.segments().offset_of(address)?, self.segments().offset_of(VirtualAddress(last))?))
        });
        let Some((FileOffset(first), FileOffset(last))) = ends else { return Ok(false) };
        if last.wrapping_sub(first) != buffer.len().saturating_sub(1) as u64 {
            return Ok(false);
        }
        self.source().read_exact_at(buffer, first).map_err(|error| self.error(read_failure(error)))?;
        Ok(true)
    }

    /// Whether the file is a program, and not a library.
    ///
    /// # Errors
    /// [`ElfError`] if the headers cannot be read.
    pub fn is_program(&self) -> Result<bool, ElfError> {
        let cache = self.cache();
        let tables = Tables::read(self, &cache)?;
        let has_interpreter =
            tables.program_headers().iter().any(|header| header.p_type(LittleEndian) == elf::PT_INTERP);
        let flags = tables.dynamic(elf::DT_FLAGS_1)?;
        Ok(self.is_fixed()
            || has_interpreter
            || flags.is_some_and(|flags| flags & u64::from(elf::DF_1_PIE) != 0))
    }

    /// The library's own name for itself (`DT_SONAME`), if it is readable.
    ///
    /// # Errors
    /// [`ElfError`] if the tables cannot be read.
    pub fn soname(&self) -> Result<Option<String>, ElfError> {
        let cache = self.cache();
        let tables = Tables::read(self, &cache)?;
        let Some(offset) = tables.dynamic(elf::DT_SONAME)?.and_then(|offset| u32::try_from(offset).ok())
        else {
            return Ok(None);
        };
        let table = tables.symbol_tables(&[TableKind::Dynamic])?.into_iter().next();
        let name = table.and_then(|table| table.string(offset));
        Ok(name.and_then(|name| std::str::from_utf8(name).ok()).map(str::to_owned))
    }
}

#[cfg(test)]
mod tests;
