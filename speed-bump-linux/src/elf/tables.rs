//! The tables of an ELF file: sections, symbols with their versions, notes. Before we read a table, we
//! compare its size with the size of the file.

use std::ops::Range;

use object::{
    LittleEndian, elf,
    pod::slice_from_all_bytes,
    read::{
        StringTable, SymbolIndex,
        elf::{
            Dyn as _, FileHeader as _, GnuHashTable, HashTable, ProgramHeader as _, SectionHeader as _,
            VersionTable,
        },
    },
};

use super::{
    error::ElfError,
    file::{ElfFile, FileCache},
    name::TableKind,
    source::TABLE_LIMIT,
};
use crate::units::{FileOffset, VirtualAddress};

pub(super) type FileHeader = elf::FileHeader64<LittleEndian>;
pub(super) type ProgramHeader = elf::ProgramHeader64<LittleEndian>;
pub(super) type SectionHeader = elf::SectionHeader64<LittleEndian>;
pub(super) type Symbol = elf::Sym64<LittleEndian>;
pub(super) type Rela = elf::Rela64<LittleEndian>;

/// The most bytes of the program headers: 1,170 of them. Linkers write a dozen.
const PROGRAM_HEADERS_LIMIT: u64 = 64 << 10;
/// The most bytes of the section headers: 65,536 of them. Linkers write a few dozen.
const SECTION_HEADERS_LIMIT: u64 = 4 << 20;
/// The most bytes of the names of sections.
const SECTION_NAMES_LIMIT: u64 = 4 << 20;
/// The most sections of code. We store them as long as the file is open.
const CODE_SECTIONS_LIMIT: usize = 4_096;
/// The most bytes of the dynamic segment: 65,536 entries. Linkers write a few dozen, and one for each
/// library.
const DYNAMIC_LIMIT: u64 = 1 << 20;
/// The most bytes of the notes that we search for a build id. Other notes, by plug-ins of compilers, can be
/// larger.
const NOTES_LIMIT: u64 = 1 << 20;
/// The most bytes of a build id. Linkers write 16 or 20 bytes.
const BUILD_ID_LIMIT: usize = 64;
/// The most bytes of the tables of versions, defined and needed: 2,000 versions. This limit also bounds the
/// time, because we walk through chains.
const VERSIONS_LIMIT: u64 = 64 << 10;

/// The headers of a file. Gives access to the tables to which they point.
pub(super) struct Tables<'c> {
    file: &'c ElfFile,
    cache: &'c FileCache<'c>,
    program_headers: &'c [ProgramHeader],
    sections: &'c [SectionHeader],
    /// The names of the sections.
    names: StringTable<'c>,
}

/// A symbol table with its names.
pub(super) struct SymbolTable<'c> {
    pub(super) kind: TableKind,
    pub(super) symbols: &'c [Symbol],
    strings: StringTable<'c>,
    versions: VersionTable<'c, FileHeader>,
    /// The index of the table's section header; 0 if the file has none.
    pub(super) section: usize,
}

/// A version, as in the tables.
#[derive(Clone, Copy)]
pub(super) struct RawVersion<'c> {
    pub(super) name: &'c [u8],
    /// Whether the version is not marked hidden: the linker binds a reference without a version to this
    /// version.
    pub(super) default: bool,
}

impl<'c> SymbolTable<'c> {
    pub(super) fn name(&self, symbol: &Symbol) -> Result<&'c [u8], &'static str> {
        self.strings
            .get(symbol.st_name.get(LittleEndian))
            .map_err(|()| "a symbol's name lies outside its string table")
    }

    /// A string in the string table of the symbols, if there is one.
    pub(super) fn string(&self, offset: u32) -> Option<&'c [u8]> {
        self.strings.get(offset).ok()
    }

    pub(super) fn version(&self, index: usize) -> Result<Option<RawVersion<'c>>, &'static str> {
        if self.versions.is_empty() {
            return Ok(None);
        }
        let version_index = self.versions.version_index(LittleEndian, SymbolIndex(index));
        let version =
            self.versions.version(version_index).map_err(|_| "a symbol's version is not in its tables")?;
        Ok(version.map(|version| RawVersion { name: version.name(), default: !version_index.is_hidden() }))
    }
}

impl<'c> Tables<'c> {
    pub(super) fn read(file: &'c ElfFile, cache: &'c FileCache<'c>) -> Result<Self, ElfError> {
        let data = cache.data();
        let header =
            FileHeader::parse(data).map_err(|_| cache.explain(file, "its header cannot be parsed"))?;
        let wrong = |what| move |_| cache.explain(file, what);

        let count =
            header.phnum(LittleEndian, data).map_err(wrong("its program headers cannot be counted"))?;
        let size = count as u64 * size_of::<ProgramHeader>() as u64;
        if count > 0 {
            file.check_range(header.e_phoff(LittleEndian), size, "program header table")?;
            cache.check_size(file, size, PROGRAM_HEADERS_LIMIT, "program header table")?;
        }
        let program_headers = header
            .program_headers(LittleEndian, data)
            .map_err(wrong("its program headers cannot be parsed"))?;

        // Section 0 contains counts that do not fit into the header. So the file must contain section 0.
        let offset = header.e_shoff(LittleEndian);
        if offset != 0 {
            file.check_range(offset, size_of::<SectionHeader>() as u64, "section header table")?;
        }
        let count =
            header.shnum(LittleEndian, data).map_err(wrong("its section headers cannot be counted"))?;
        let size = (count as u64).saturating_mul(size_of::<SectionHeader>() as u64);
        file.check_range(offset, size, "section header table")?;
        cache.check_size(file, size, SECTION_HEADERS_LIMIT, "section header table")?;
        let sections = header
            .section_headers(LittleEndian, data)
            .map_err(wrong("its section headers cannot be parsed"))?;
        let mut tables = Self { file, cache, program_headers, sections, names: StringTable::default() };
        if !sections.is_empty() {
            let index =
                header.shstrndx(LittleEndian, data).map_err(wrong("its section names cannot be found"))?;
            let names = sections.get(index as usize).filter(|_| index != 0);
            let names = names.ok_or_else(|| file.corrupt("its section names cannot be found"))?;
            let range = names.file_range(LittleEndian).unwrap_or_default();
            tables.names = strings(tables.limited(range, SECTION_NAMES_LIMIT, "section name table")?);
        }
        Ok(tables)
    }

    pub(super) fn program_headers(&self) -> &'c [ProgramHeader] {
        self.program_headers
    }

    pub(super) fn has_sections(&self) -> bool {
        !self.sections.is_empty()
    }

    /// The sections with this name that have contents.
    pub(super) fn sections_named<'n>(
        &self,
        name: &'n [u8],
    ) -> impl Iterator<Item = &'c SectionHeader> + use<'c, 'n, '_> {
        self.sections.iter().filter(move |section| self.section_name(section) == Some(name))
    }

    pub(super) fn section_named(&self, name: &[u8]) -> Option<&'c SectionHeader> {
        self.sections_named(name).next()
    }

    fn section_name(&self, section: &SectionHeader) -> Option<&'c [u8]> {
        self.names.get(section.sh_name(LittleEndian)).ok()
    }

    pub(super) fn section(&self, index: usize) -> Option<&'c SectionHeader> {
        self.sections.get(index)
    }

    /// The contents of a section. Empty for `SHT_NOBITS`.
    pub(super) fn data(&self, section: &SectionHeader, what: &'static str) -> Result<&'c [u8], ElfError> {
        match section.file_range(LittleEndian) {
            None => Ok(&[]),
            Some((offset, size)) => self.bytes(offset, size, what),
        }
    }

    pub(super) fn bytes(&self, offset: u64, size: u64, what: &'static str) -> Result<&'c [u8], ElfError> {
        self.limited((offset, size), TABLE_LIMIT, what)
    }

    /// Like [`bytes`](Self::bytes), but with another limit.
    pub(super) fn limited(
        &self,
        (offset, size): (u64, u64),
        limit: u64,
        what: &'static str,
    ) -> Result<&'c [u8], ElfError> {
        self.file.check_range(offset, size, what)?;
        self.cache.check_size(self.file, size, limit, what)?;
        self.cache.bytes(self.file, offset, size)
    }

    /// The tables of these kinds that exist. This reads only `Symbols` (`.symtab`) and `Dynamic` (`.dynsym`).
    pub(super) fn symbol_tables(&self, wanted: &[TableKind]) -> Result<Vec<SymbolTable<'c>>, ElfError> {
        let mut found = Vec::new();
        for (index, section) in self.sections.iter().enumerate() {
            let kind = match section.sh_type(LittleEndian) {
                elf::SHT_SYMTAB => TableKind::Symbols,
                elf::SHT_DYNSYM => TableKind::Dynamic,
                _ => continue,
            };
            if !wanted.contains(&kind) {
                continue;
            }
            let symbols = whole_entries::<Symbol>(self.data(section, "symbol table")?);
            if symbols.is_empty() {
                // Debug files keep the header of .dynsym, but not its contents.
                continue;
            }
            let names = self
                .section(section.sh_link(LittleEndian) as usize)
                .ok_or_else(|| self.file.corrupt("a symbol table has no string table"))?;
            let names = strings(self.data(names, "string table")?);
            let versions = match kind {
                TableKind::Dynamic => self.versions(names)?,
                _ => VersionTable::default(),
            };
            found.push(SymbolTable { kind, symbols, strings: names, versions, section: index });
        }
        if !self.has_sections() {
            found.extend(self.symbols_without_sections()?);
        }
        Ok(found)
    }

    /// The versions of the dynamic symbols. `names` is their string table.
    fn versions(&self, names: StringTable<'c>) -> Result<VersionTable<'c, FileHeader>, ElfError> {
        let of_type = |kind| self.sections.iter().find(|section| section.sh_type(LittleEndian) == kind);
        let Some(indices) = of_type(elf::SHT_GNU_VERSYM) else { return Ok(VersionTable::default()) };
        let indices = whole_entries(self.data(indices, "table of symbol versions")?);
        let (defined, needed) = (of_type(elf::SHT_GNU_VERDEF), of_type(elf::SHT_GNU_VERNEED));
        for section in [defined, needed].into_iter().flatten() {
            let range = section.file_range(LittleEndian).unwrap_or_default();
            self.limited(range, VERSIONS_LIMIT, "table of versions")?;
        }
        // The tables have just been read.
        let data = self.cache.data();
        let corrupt = |_| self.file.corrupt("its symbol versions cannot be parsed");
        let defined = defined.map(|section| section.gnu_verdef(LittleEndian, data));
        let defined = defined.transpose().map_err(corrupt)?.flatten().map(|(versions, _)| versions);
        let needed = needed.map(|section| section.gnu_verneed(LittleEndian, data));
        let needed = needed.transpose().map_err(corrupt)?.flatten().map(|(versions, _)| versions);
        VersionTable::parse(LittleEndian, indices, defined, needed, names).map_err(corrupt)
    }

    /// The dynamic relocations with addends, each with the index of the section of its symbol table.
    pub(super) fn dynamic_relocations(&self) -> Result<Vec<(usize, &'c [Rela])>, ElfError> {
        let mut found = Vec::new();
        for section in self.sections.iter() {
            let allocated = section.sh_flags(LittleEndian) & u64::from(elf::SHF_ALLOC) != 0;
            if allocated && section.sh_type(LittleEndian) == elf::SHT_RELA {
                let entries = whole_entries(self.data(section, "relocation table")?);
                found.push((section.sh_link(LittleEndian) as usize, entries));
            }
        }
        if !self.has_sections() {
            for (table, size) in [(elf::DT_RELA, elf::DT_RELASZ), (elf::DT_JMPREL, elf::DT_PLTRELSZ)] {
                if let (Some(offset), Some(size)) = (self.dynamic_offset(table)?, self.dynamic(size)?) {
                    found.push((0, whole_entries(self.bytes(offset.0, size, "relocation table")?)));
                }
            }
        }
        Ok(found)
    }

    pub(super) fn build_id(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let sections = self.sections.iter().filter(|s| s.sh_type(LittleEndian) == elf::SHT_NOTE);
        let mut ranges: Vec<_> = sections.filter_map(|s| s.file_range(LittleEndian)).collect();
        if ranges.is_empty() {
            let segments = self.program_headers.iter().filter(|p| p.p_type(LittleEndian) == elf::PT_NOTE);
            ranges.extend(segments.map(|segment| segment.file_range(LittleEndian)));
        }
        for range in ranges.into_iter().filter(|(_, size)| *size <= NOTES_LIMIT) {
            let data = self.limited(range, NOTES_LIMIT, "note section")?;
            let mut notes = Note::all(data);
            let id = notes.find(|note| note.owner == b"GNU\0" && note.kind == elf::NT_GNU_BUILD_ID);
            if let Some(id) = id.filter(|id| id.description.len() <= BUILD_ID_LIMIT) {
                return Ok(Some(id.description.to_owned()));
            }
        }
        Ok(None)
    }

    /// The address ranges of code, according to the section headers.
    pub(super) fn code_sections(&self) -> Result<CodeSections, ElfError> {
        let mut code = CodeSections { known: self.has_sections(), ..CodeSections::default() };
        for section in self.sections.iter() {
            let flags = section.sh_flags(LittleEndian);
            if flags & u64::from(elf::SHF_ALLOC) == 0 || flags & u64::from(elf::SHF_EXECINSTR) == 0 {
                continue;
            }
            let start = section.sh_addr(LittleEndian);
            let range = start..start.saturating_add(section.sh_size(LittleEndian));
            // These are .plt, .plt.got, .plt.sec, .plt.bnd, and .iplt of static executables.
            let name = self
                .section_name(section)
                .ok_or_else(|| self.file.corrupt("a section's name cannot be read"))?;
            let is_plt = name.starts_with(b".plt") || name == b".iplt";
            if is_plt {
                code.plt.push(range)
            } else {
                code.code.push(range)
            }
            if code.plt.len() + code.code.len() > CODE_SECTIONS_LIMIT {
                return Err(self.file.corrupt("it has more sections of code than any linker makes"));
            }
        }
        Ok(code)
    }

    // The dynamic symbols of a file without section headers (after sstrip). The dynamic segment gives their
    // address, but not their number.

    fn symbols_without_sections(&self) -> Result<Option<SymbolTable<'c>>, ElfError> {
        let (Some(symbols), Some(names), Some(names_size)) = (
            self.dynamic_offset(elf::DT_SYMTAB)?,
            self.dynamic_offset(elf::DT_STRTAB)?,
            self.dynamic(elf::DT_STRSZ)?,
        ) else {
            return Ok(None);
        };
        let Some(count) = self.count_dynamic_symbols()? else { return Ok(None) };
        let size = u64::from(count) * size_of::<Symbol>() as u64;
        let symbols = whole_entries(self.bytes(symbols.0, size, "symbol table")?);
        let names = self.bytes(names.0, names_size, "string table")?;
        Ok(Some(SymbolTable {
            kind: TableKind::Dynamic,
            symbols,
            strings: strings(names),
            versions: VersionTable::default(),
            section: 0,
        }))
    }

    fn count_dynamic_symbols(&self) -> Result<Option<u32>, ElfError> {
        /// Hash tables do not give their size. We ignore what we read beyond the table. The limit is 16 M
        /// symbols.
        const HASH_TABLE_LIMIT: u64 = 64 << 20;
        let rest = |offset: FileOffset| {
            let size = self.file.length().saturating_sub(offset.0).min(HASH_TABLE_LIMIT) & !7;
            self.bytes(offset.0, size, "symbol hash table")
        };
        if let Some(offset) = self.dynamic_offset(elf::DT_GNU_HASH)? {
            let table = GnuHashTable::<FileHeader>::parse(LittleEndian, rest(offset)?)
                .map_err(|_| self.file.corrupt("its symbol hash table cannot be parsed"))?;
            if let Some(count) = table.symbol_table_length(LittleEndian) {
                return Ok(Some(count));
            }
        }
        let Some(offset) = self.dynamic_offset(elf::DT_HASH)? else { return Ok(None) };
        let table = HashTable::<FileHeader>::parse(LittleEndian, rest(offset)?)
            .map_err(|_| self.file.corrupt("its symbol hash table cannot be parsed"))?;
        Ok(Some(table.symbol_table_length()))
    }

    pub(super) fn dynamic(&self, tag: i64) -> Result<Option<u64>, ElfError> {
        let segment = self.program_headers.iter().find(|p| p.p_type(LittleEndian) == elf::PT_DYNAMIC);
        let Some(segment) = segment else { return Ok(None) };
        let range = segment.file_range(LittleEndian);
        let entries: &[elf::Dyn64<LittleEndian>] =
            whole_entries(self.limited(range, DYNAMIC_LIMIT, "dynamic segment")?);
        let entry = entries.iter().find(|entry| entry.tag(LittleEndian) == tag);
        Ok(entry.map(|entry| entry.d_val(LittleEndian)))
    }

    fn dynamic_offset(&self, tag: i64) -> Result<Option<FileOffset>, ElfError> {
        let segments = super::Segments::from_headers(self.program_headers).unwrap_or_default();
        Ok(self.dynamic(tag)?.and_then(|address| segments.offset_of(VirtualAddress(address))))
    }
}

fn strings(data: &[u8]) -> StringTable<'_> {
    StringTable::new(data, 0, data.len() as u64)
}

/// The entries of a table, without an incomplete one at the end.
fn whole_entries<T: object::pod::Pod>(data: &[u8]) -> &[T] {
    let whole = data.len() - data.len() % size_of::<T>();
    slice_from_all_bytes(&data[..whole]).unwrap_or(&[])
}

/// The address ranges of code, from the section headers.
#[derive(Debug, Default)]
pub(super) struct CodeSections {
    /// False if there are no section headers. Then only segments show where code is.
    known: bool,
    code: Vec<Range<u64>>,
    plt: Vec<Range<u64>>,
}

impl CodeSections {
    /// Whether the address may be code, including the PLT.
    pub(super) fn may_be_code(&self, address: VirtualAddress) -> bool {
        !self.known || self.code.iter().chain(&self.plt).any(|range| range.contains(&address.0))
    }

    /// Whether the address is a stub for an import.
    pub(super) fn is_plt(&self, address: VirtualAddress) -> bool {
        self.plt.iter().any(|range| range.contains(&address.0))
    }
}

/// One note in a section or segment of notes.
pub(super) struct Note<'d> {
    /// The owner, including the final NUL.
    pub(super) owner: &'d [u8],
    pub(super) kind: u32,
    pub(super) description: &'d [u8],
}

impl<'d> Note<'d> {
    /// All notes before the first one that does not fit. (`object` also reads notes, but relies on the
    /// alignment that the section gives. Some tools give a wrong alignment beside `.note.gnu.property`.)
    pub(super) fn all(mut data: &'d [u8]) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || {
            let (note, rest) = Self::split_off(data)?;
            data = rest;
            Some(note)
        })
    }

    /// The first note, and the bytes after it.
    pub(super) fn split_off(data: &'d [u8]) -> Option<(Self, &'d [u8])> {
        let (header, rest) = data.split_first_chunk::<12>()?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let padded = |size: u32| (size as usize).next_multiple_of(4);
        let (owner_size, description_size) = (word(0), word(4));
        let owner = rest.get(..owner_size as usize)?;
        let rest = rest.get(padded(owner_size)..)?;
        let description = rest.get(..description_size as usize)?;
        // The last note may have no padding.
        let rest = rest.get(padded(description_size)..).unwrap_or(&[]);
        Some((Self { owner, kind: word(8), description }, rest))
    }
}

#[cfg(test)]
mod tests;
