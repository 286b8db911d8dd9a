//! Reads the code of an open file, for choosing sites.
//!
//! We read the file piece by piece, and do not map it. Any process that may write to the file may also
//! truncate it, and then access to mapped memory beyond its end raises SIGBUS. If we can no longer read a
//! piece, the whole file is in error ([`CodeFile::check`]), because a branch that we did not see could make a
//! site look safe.

use std::{cell::OnceCell, ops::Range};

use super::site::{CodeMap, CodeSymbol, LandingPads, ReadCode, is_fragment_name};
use crate::{
    elf::{ElfError, ElfFile, TABLE_LIMIT, TableKind},
    units::VirtualAddress,
};

/// An ELF file whose code we read.
#[derive(Debug)]
pub(crate) struct CodeFile {
    elf: ElfFile,
    /// The error for the first piece that we could not read.
    unread: OnceCell<ElfError>,
}

impl CodeFile {
    /// Takes an ELF file.
    pub(crate) fn new(elf: ElfFile) -> Self {
        Self { elf, unread: OnceCell::new() }
    }

    /// The executable segments and the symbols in them.
    ///
    /// # Errors
    /// The tables of the file are corrupt, or larger than our limits.
    pub(crate) fn code(&self) -> Result<CodeMap<'_>, ElfError> {
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

    /// Checks that we could read all requested pieces.
    ///
    /// # Errors
    /// The file changed while we read it.
    pub(crate) fn check(self) -> Result<(), ElfError> {
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

    /// The address ranges of the global offset tables.
    fn got(&self) -> Result<Vec<Range<u64>>, ElfError> {
        let ranges = [self.elf.section_range(b".got")?, self.elf.section_range(b".got.plt")?];
        Ok(ranges.into_iter().flatten().collect())
    }
}

impl ReadCode for CodeFile {
    fn read_code(&self, address: VirtualAddress, buffer: &mut [u8]) -> usize {
        self.elf.read_code(address, buffer).unwrap_or_else(|error| {
            // `set` keeps only the first error.
            let _ = self.unread.set(error);
            0
        })
    }
}
