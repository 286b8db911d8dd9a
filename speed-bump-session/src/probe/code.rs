//! The code of a file that is held open, as the choice of sites wants it.
//!
//! The file is read piece by piece, and not mapped: whoever may write it may cut it, and what touches memory
//! beyond its end dies of SIGBUS. A piece that can no longer be read is an error of the whole file
//! ([`CodeFile::check`]), since a branch that was not seen could make a site look safe.

use std::{cell::OnceCell, ops::Range};

use super::site::{CodeMap, CodeSymbol, LandingPads, ReadCode, is_fragment_name};
use crate::{
    elf::{ElfError, ElfFile, TABLE_LIMIT, TableKind},
    units::VirtualAddress,
};

/// An ELF file of which code is read.
#[derive(Debug)]
pub struct CodeFile {
    elf: ElfFile,
    /// The first piece that could not be read.
    unread: OnceCell<ElfError>,
}

impl CodeFile {
    /// Takes a file.
    pub fn new(elf: ElfFile) -> Self {
        Self { elf, unread: OnceCell::new() }
    }

    /// Executable segments and the symbols in them.
    ///
    /// # Errors
    /// The tables are corrupt, or larger than any that is read.
    pub fn code(&self) -> Result<CodeMap<'_>, ElfError> {
        let executable = self.elf.segments().iter().filter(|segment| segment.executable);
        let segments = executable.map(|segment| {
            let start = segment.address.0;
            start..start.saturating_add(segment.file_size)
        });
        let named = self.symbols(TableKind::Symbols)?;
        let (symbols, landing_pads) = if named.is_empty() {
            (self.symbols(TableKind::Dynamic)?, self.landing_pads()?)
        } else {
            (named, LandingPads::InSymbols)
        };
        Ok(CodeMap::in_file(self, segments, symbols, landing_pads).with_got(self.got()?))
    }

    /// That all code could be read that was asked for.
    ///
    /// # Errors
    /// The file changed meanwhile.
    pub fn check(self) -> Result<(), ElfError> {
        self.unread.into_inner().map_or(Ok(()), Err)
    }

    fn symbols(&self, table: TableKind) -> Result<Vec<CodeSymbol>, ElfError> {
        let mut found = Vec::new();
        self.elf.each_symbol(table, |symbol| {
            if symbol.in_code {
                let fragment = is_fragment_name(&String::from_utf8_lossy(symbol.name));
                found.push(CodeSymbol { address: symbol.address, size: symbol.size, fragment });
            }
        })?;
        Ok(found)
    }

    fn landing_pads(&self) -> Result<LandingPads, ElfError> {
        let Some(range) = self.elf.section_range(b".eh_frame")? else { return Ok(LandingPads::Anywhere) };
        let data = self.elf.section(b".eh_frame", TABLE_LIMIT)?.unwrap_or_default();
        Ok(LandingPads::of_eh_frame(&data, VirtualAddress(range.start)))
    }

    /// Where the dynamic loader keeps the addresses of imported functions.
    fn got(&self) -> Result<Vec<Range<u64>>, ElfError> {
        let ranges = [self.elf.section_range(b".got")?, self.elf.section_range(b".got.plt")?];
        Ok(ranges.into_iter().flatten().collect())
    }
}

impl ReadCode for CodeFile {
    fn read_code(&self, address: VirtualAddress, buffer: &mut [u8]) -> usize {
        self.elf.read_code(address, buffer).unwrap_or_else(|error| {
            // The first is told.
            let _ = self.unread.set(error);
            0
        })
    }
}
