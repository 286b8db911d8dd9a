//! Reads from an ELF file the facts by which we recognise an interpreter.

use std::fs::File;
use std::path::Path;

use crate::{
    elf::{ElfError, ElfErrorKind, ElfFile, TableKind},
    units::VirtualAddress,
};

/// A symbol that the file defines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) address: VirtualAddress,
    pub(super) size: u64,
}

/// An ELF file that may contain an interpreter.
#[derive(Debug)]
pub(super) struct Image {
    elf: ElfFile,
}

impl Image {
    /// Opens an ELF file. `None` if the file is not for this machine, or has no code of its own (such as a
    /// core dump).
    pub(super) fn open(file: &File, path: &Path) -> Result<Option<Self>, ElfErrorKind> {
        use ElfErrorKind as E;
        let file = file.try_clone().map_err(E::Read)?;
        match ElfFile::from_file(file, path) {
            Ok(elf) => Ok(Some(Self { elf })),
            Err(ElfError {
                kind:
                    E::NotElf
                    | E::TooShort { .. }
                    | E::Class32
                    | E::BigEndian
                    | E::WrongMachine { .. }
                    | E::NotLoadable(_),
                ..
            }) => Ok(None),
            Err(error) => Err(error.kind),
        }
    }

    /// The symbols with these names, in order, and whether any symbol has this prefix. Reads the exported
    /// symbols. If a program exports no symbol of CPython (as static programs do not), this reads the
    /// program's other symbols too. We do not read a library's private symbols: there are many, and nothing
    /// can link to an interpreter that is private.
    pub(super) fn symbols(
        &self,
        names: &[&str],
        prefix: &str,
    ) -> Result<(Vec<Option<Symbol>>, bool), ElfErrorKind> {
        let (mut found, mut has_prefix) = (vec![None; names.len()], false);
        let tables: &[TableKind] = if self.is_program()? {
            &[TableKind::Dynamic, TableKind::Symbols]
        } else {
            &[TableKind::Dynamic]
        };
        for table in tables {
            let visited = self.elf.each_symbol(*table, |symbol| {
                has_prefix |= symbol.name.starts_with(prefix.as_bytes());
                for (slot, wanted) in found.iter_mut().zip(names) {
                    if slot.is_none() && symbol.name == wanted.as_bytes() {
                        *slot = Some(Symbol { address: symbol.address, size: symbol.size });
                    }
                }
            });
            visited.map_err(|error| error.kind)?;
        }
        Ok((found, has_prefix))
    }

    fn is_program(&self) -> Result<bool, ElfErrorKind> {
        self.elf.is_program().map_err(|error| error.kind)
    }

    /// The file's bytes at an address; `None` if the file has none.
    pub(super) fn read<const N: usize>(&self, address: VirtualAddress) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.elf.read_at(address, &mut bytes).is_ok_and(|read| read).then_some(bytes)
    }

    /// The file offset of the code at an address.
    pub(super) fn offset(&self, address: VirtualAddress) -> Option<crate::units::FileOffset> {
        self.elf.segments().offset_of(address)
    }

    /// The library's own name (`DT_SONAME`).
    pub(super) fn soname(&self) -> Option<String> {
        self.elf.soname().ok()?
    }

    /// The section `.rodata`, if it has at most `limit` bytes.
    pub(super) fn read_only_data(&self, limit: u64) -> Option<Vec<u8>> {
        self.elf.section(b".rodata", limit).ok()?
    }

    /// Whether the section `.note.stapsdt` describes this probe.
    pub(super) fn has_probe(&self, provider: &str, name: &str) -> bool {
        let is_probe = |probe: &crate::elf::UsdtProbe| probe.provider == provider && probe.name == name;
        self.elf.usdt_probes().is_ok_and(|found| found.probes.iter().any(is_probe))
    }
}
