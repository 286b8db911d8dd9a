//! The functions of a file: the union of its symbol tables. There are functions that can have a probe,
//! functions that a resolver chooses at run time (IFUNC), and symbols that we refuse, each with a reason.

use std::borrow::Cow;

use object::{LittleEndian, elf};

use super::{
    debug_files,
    effort::Effort,
    error::ElfError,
    file::ElfFile,
    go_table::{self, GoFunction},
    mini_debug_info,
    name::{Binding, FunctionNames, SymbolName, SymbolVersion, TableKind, printable},
    root::Root,
    tables::{Symbol, SymbolTable, Tables},
};
use crate::{
    bounds::NAME_BYTES,
    units::{FileOffset, VirtualAddress},
};

/// The most symbols that we store for one file and its debug files: twenty times the number in the largest
/// libraries that we design for. Each symbol takes about 200 bytes.
const SYMBOLS_LIMIT: usize = 1 << 20;
/// The most bytes of the symbols' names. In the file, symbols may share the bytes of a name; in our memory
/// they do not.
const NAMES_LIMIT: usize = 128 << 20;

/// A function whose code is in the file.
#[derive(Clone, Debug)]
pub struct FunctionSymbol {
    /// The address of the function's first instruction, as in the file's headers.
    pub address: VirtualAddress,
    /// Its size in bytes; 0 if no table gives it (hand-written assembly).
    pub size: u64,
    /// The offset of its first instruction in the file.
    pub offset: FileOffset,
    /// All names at this address.
    pub names: FunctionNames,
}

/// An `STT_GNU_IFUNC`: a resolver chooses the code for this name when the program starts. The symbol has the
/// address of the resolver. The resolver runs once, so a probe there would never see a call.
#[derive(Clone, Debug)]
pub struct IndirectFunction {
    /// The address of the resolver, as in the file's headers. [`resolve_indirect`](super::resolve_indirect)
    /// finds the code that it chose.
    pub resolver: VirtualAddress,
    /// All names of the IFUNC.
    pub names: FunctionNames,
}

/// A symbol that cannot have a probe.
#[derive(Clone, Debug)]
pub struct RefusedSymbol {
    /// The name as in the symbol table, with its demangled forms.
    pub name: SymbolName,
    /// Why the symbol cannot have a probe.
    pub refusal: Refusal,
    /// Where the cold part of a function lies: its address as the file counts, and its size in bytes.
    pub part: Option<(VirtualAddress, u64)>,
}

impl RefusedSymbol {
    fn new(main: &ElfFile, name: SymbolName, refusal: Refusal, place: (VirtualAddress, u64)) -> Self {
        let (address, size) = place;
        let part = (refusal == Refusal::ColdPart).then(|| (address, clamp(main, address, size)));
        Self { name, refusal, part }
    }
}

/// Why a symbol cannot have a probe. A breakpoint would corrupt data. So we refuse a symbol unless it is
/// certainly at the first instruction of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// Another file defines the symbol.
    #[error("it is imported: its code is in another file, name that one")]
    Imported,
    /// The symbol is in `.plt` or a similar section.
    #[error("it is an import stub (PLT): its code is in another file, name that one")]
    Plt,
    /// The symbol is `STT_OBJECT`, `STT_COMMON` or `STT_TLS`.
    #[error("it is data, not a function")]
    Data,
    /// The symbol is `STT_NOTYPE`: a label, which may mark data.
    #[error(
        "it is a label without a type, which may mark data (assembly: declare it `.type NAME, @function`)"
    )]
    Untyped,
    /// The symbol is `SHN_ABS`.
    #[error("it is a constant, not an address")]
    Absolute,
    /// The symbol is outside executable segments and sections, or its bytes are not in the file.
    #[error("its address is not in an executable part of the file")]
    NotCode,
    /// The segment is also writable. The kernel does not probe such segments.
    #[error("its code is writable, and the kernel places no probes there")]
    WritableCode,
    /// The symbol is an `f.cold` of GCC or LLVM: the unlikely part of `f`. `f` jumps there, and nobody calls
    /// it.
    #[error("it is the cold part of a function, which is not called; name the function")]
    ColdPart,
}

/// All functions of a file.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    functions: Vec<FunctionSymbol>,
    indirect: Vec<IndirectFunction>,
    refused: Vec<RefusedSymbol>,
    tables: Vec<TableKind>,
    warnings: Vec<String>,
}

/// A symbol of a file, by what can be done with it.
#[derive(Clone, Copy, Debug)]
pub enum Named<'f> {
    /// The symbol can have a probe.
    Function(&'f FunctionSymbol),
    /// The symbol is an IFUNC, and a resolver chooses its code at run time.
    Indirect(&'f IndirectFunction),
    /// The symbol cannot have a probe.
    Refused(&'f RefusedSymbol),
}

impl Functions {
    /// All symbols, each with the names that a user may write for it. Functions come first, then IFUNCs, and
    /// then symbols that cannot have a probe.
    ///
    /// Only demangles names for which `demangles` returns true.
    pub fn named_where<'f>(
        &'f self,
        demangles: impl Fn(&str) -> bool + Copy + 'f,
    ) -> impl Iterator<Item = (Named<'f>, Candidates<'f>)> {
        let of_names = move |names: &'f FunctionNames| boxed(names.candidates_where(demangles));
        let functions = self.functions.iter().map(move |of| (Named::Function(of), of_names(&of.names)));
        let indirect = self.indirect.iter().map(move |of| (Named::Indirect(of), of_names(&of.names)));
        let of_name = move |name: &'f SymbolName| boxed(name.candidates_where(demangles));
        let refused = self.refused.iter().map(move |of| (Named::Refused(of), of_name(&of.name)));
        functions.chain(indirect).chain(refused)
    }

    /// The functions, sorted by address. Aliases count as one function.
    pub fn functions(&self) -> &[FunctionSymbol] {
        &self.functions
    }

    /// The IFUNCs, sorted by the address of the resolver.
    pub fn indirect(&self) -> &[IndirectFunction] {
        &self.indirect
    }

    /// The symbols that cannot have a probe, sorted by name. Leaves out names that are also names of a
    /// function or IFUNC.
    pub fn refused(&self) -> &[RefusedSymbol] {
        &self.refused
    }

    /// An estimate of the memory that the symbols take, in bytes.
    pub fn bytes(&self) -> usize {
        let functions = self.functions.iter().map(|of| size_of::<FunctionSymbol>() + of.names.bytes());
        let indirect = self.indirect.iter().map(|of| size_of::<IndirectFunction>() + of.names.bytes());
        let refused = self.refused.iter().map(|of| size_of::<RefusedSymbol>() + of.name.text_bytes());
        functions.chain(indirect).chain(refused).sum()
    }

    /// The tables that had symbols. Empty if the file is stripped and we found no debug file.
    pub fn tables(&self) -> &[TableKind] {
        &self.tables
    }

    /// Warnings about tables that exist but that we could not use: debug files that do not match, broken
    /// `.gnu_debugdata`. We have read all other tables completely.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The function that contains an address. A function without a known size only contains its first
    /// address.
    pub fn containing(&self, address: VirtualAddress) -> Option<&FunctionSymbol> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let function = &self.functions[after.checked_sub(1)?];
        let distance = address.0 - function.address.0;
        (distance < function.size.max(1)).then_some(function)
    }
}

impl ElfFile {
    /// Reads the functions that the file itself names: in `.symtab`, `.dynsym`, `.gnu_debugdata`, and, for a
    /// Go program without `.symtab`, in `.gopclntab`.
    ///
    /// # Errors
    /// [`ElfError`] if the file's own tables cannot be read.
    pub fn functions(&self) -> Result<Functions, ElfError> {
        let mut found = Collector::new(self);
        found.own_tables()?;
        Ok(found.finish())
    }

    /// Reads the functions that the file and its separate debug files name. We find debug files by build id
    /// and `.gnu_debuglink` below `root`; `path` is the file's own path there. `effort` bounds how much we
    /// read to check that debug files belong to the file.
    ///
    /// # Errors
    /// See [`ElfFile::functions`]. If we cannot use a debug file, [`Functions::warnings`] says so.
    pub fn functions_with_debug_files(
        &self,
        root: &Root,
        path: &std::path::Path,
        effort: &Effort,
    ) -> Result<Functions, ElfError> {
        let mut found = Collector::new(self);
        found.own_tables()?;
        let (files, rejected) = debug_files::find(self, root, path, effort)?;
        found.warnings.extend(rejected.iter().map(ToString::to_string));
        for file in files {
            if let Err(error) = found.tables_of(&file, TableKind::DebugFile) {
                found.warnings.push(error.to_string());
            }
        }
        Ok(found.finish())
    }
}

/// A symbol that we have accepted. We have not joined aliases yet.
struct Entry {
    address: VirtualAddress,
    size: u64,
    offset: FileOffset,
    indirect: bool,
    name: SymbolName,
}

struct Collector<'f> {
    /// The file itself. Its segments decide whether an address is code, also for symbols of its debug files.
    main: &'f ElfFile,
    entries: Vec<Entry>,
    refused: Vec<RefusedSymbol>,
    tables: Vec<TableKind>,
    warnings: Vec<String>,
    /// The total length of the names that we have kept.
    names: usize,
    /// The number of symbols that we left out: because the name is too long, and because there were too many
    /// symbols.
    too_long: usize,
    too_many: usize,
}

impl<'f> Collector<'f> {
    fn new(main: &'f ElfFile) -> Self {
        Self {
            main,
            entries: Vec::new(),
            refused: Vec::new(),
            tables: Vec::new(),
            warnings: Vec::new(),
            names: 0,
            too_long: 0,
            too_many: 0,
        }
    }

    fn own_tables(&mut self) -> Result<(), ElfError> {
        self.tables_of(self.main, TableKind::Symbols)?;
        if !self.tables.contains(&TableKind::Symbols) {
            // In a file that is not stripped, the symbol table has these names too.
            self.go_table();
        }
        let cache = self.main.cache();
        let tables = Tables::read(self.main, &cache)?;
        if let Some(section) = tables.section_named(b".gnu_debugdata") {
            let unpacked = tables
                .data(section, "section .gnu_debugdata")
                .and_then(|packed| mini_debug_info::unpack(self.main, packed));
            if let Err(error) = unpacked.and_then(|file| self.tables_of(&file, TableKind::MiniDebugInfo)) {
                self.warnings.push(error.to_string());
            }
        }
        Ok(())
    }

    /// Adds the functions in a Go program's own table, if the file has one.
    fn go_table(&mut self) {
        let main = self.main;
        let read = go_table::for_each(main, |function| {
            let text = function.name;
            if text.is_empty() || !self.takes(text.len()) {
                return;
            }
            let name = SymbolName::of_go(text);
            match judge_code(main, function.address, text) {
                Ok(offset) => {
                    let GoFunction { address, size, .. } = function;
                    self.entries.push(Entry { address, size, offset, indirect: false, name });
                }
                Err(refusal) => {
                    let place = (function.address, function.size);
                    self.refused.push(RefusedSymbol::new(main, name, refusal, place));
                }
            }
        });
        match read {
            Ok(true) => self.tables.push(TableKind::GoTable),
            Ok(false) => {}
            Err(error) => self.warnings.push(error.to_string()),
        }
    }

    /// Takes room for a symbol whose name has `length` bytes. Returns whether there was room, and counts the
    /// symbol as left out if not.
    fn takes(&mut self, length: usize) -> bool {
        if length > NAME_BYTES {
            self.too_long += 1;
            return false;
        }
        if self.entries.len() + self.refused.len() == SYMBOLS_LIMIT || self.names + length > NAMES_LIMIT {
            self.too_many += 1;
            return false;
        }
        self.names += length;
        true
    }

    /// Adds the symbols of a file. `kind` is the kind of its `.symtab`.
    fn tables_of(&mut self, file: &ElfFile, kind: TableKind) -> Result<(), ElfError> {
        let cache = file.cache();
        for table in Tables::read(file, &cache)?.symbol_tables(&[TableKind::Symbols, TableKind::Dynamic])? {
            let kind = if table.kind == TableKind::Dynamic { TableKind::Dynamic } else { kind };
            self.table(&table, kind).map_err(|what| cache.explain(file, what))?;
            if !self.tables.contains(&kind) {
                self.tables.push(kind);
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &SymbolTable<'_>, kind: TableKind) -> Result<(), &'static str> {
        for (index, symbol) in table.symbols.iter().enumerate() {
            if matches!(symbol_type(symbol), elf::STT_SECTION | elf::STT_FILE) {
                continue;
            }
            let text = table.name(symbol)?;
            // Leaves out mapping symbols ($x, $d), and symbols without a name. Names of Swift also begin with
            // `$`, but have a type.
            let is_mark = text.first() == Some(&b'$') && symbol_type(symbol) == elf::STT_NOTYPE;
            if text.is_empty() || is_mark {
                continue;
            }
            let version = table.version(index)?;
            let length = text.len() + version.map_or(0, |version| version.name.len());
            if !self.takes(length) {
                continue;
            }
            let version = version
                .map(|version| SymbolVersion { name: printable(version.name), default: version.default });
            let binding = match symbol.st_info >> 4 {
                elf::STB_LOCAL => Binding::Local,
                elf::STB_WEAK => Binding::Weak,
                _ => Binding::Global,
            };
            let verdict = judge(self.main, symbol, text);
            let name = SymbolName::new(text, version, binding, kind);
            let address = VirtualAddress(symbol.st_value.get(LittleEndian));
            let size = symbol.st_size.get(LittleEndian);
            match verdict {
                Ok(offset) => {
                    let indirect = symbol_type(symbol) == elf::STT_GNU_IFUNC;
                    self.entries.push(Entry { address, size, offset, indirect, name });
                }
                Err(refusal) => {
                    let symbol = RefusedSymbol::new(self.main, name, refusal, (address, size));
                    self.refused.push(symbol);
                }
            }
        }
        Ok(())
    }

    /// Adds warnings about symbols that we have left out.
    fn tell_left_out(&mut self) {
        let path = self.main.path().display();
        if self.too_long > 0 {
            self.warnings.push(format!(
                "{path}: {} symbols are left out, whose names have more than {NAME_BYTES} bytes",
                self.too_long
            ));
        }
        if self.too_many > 0 {
            self.warnings.push(format!(
                "{path}: {} symbols are left out: at most {SYMBOLS_LIMIT} are read of a file, and {} MiB of \
                 their names",
                self.too_many,
                NAMES_LIMIT >> 20
            ));
        }
    }

    fn finish(mut self) -> Functions {
        self.tell_left_out();
        // A function and an IFUNC at one address stay separate, because the resolver may have a name of its
        // own.
        self.entries.sort_by_key(|entry| (entry.indirect, entry.address));
        let (mut functions, mut indirect) = (Vec::new(), Vec::new());
        let mut entries = self.entries.into_iter().peekable();
        while let Some(first) = entries.next() {
            let mut size = first.size;
            let mut names = vec![first.name];
            while let Some(alias) =
                entries.next_if(|next| (next.indirect, next.address) == (first.indirect, first.address))
            {
                size = size.max(alias.size);
                names.push(alias.name);
            }
            let Some(names) = FunctionNames::new(names) else { continue };
            if first.indirect {
                indirect.push(IndirectFunction { resolver: first.address, names });
            } else {
                let size = clamp(self.main, first.address, size);
                functions.push(FunctionSymbol { address: first.address, size, offset: first.offset, names });
            }
        }
        let refused = without_accepted(self.refused, &functions, &indirect);
        Functions { functions, indirect, refused, tables: self.tables, warnings: self.warnings }
    }
}

/// The names that a user may write for a symbol.
pub type Candidates<'n> = Box<dyn Iterator<Item = Cow<'n, str>> + 'n>;

fn boxed<'n>(names: impl Iterator<Item = Cow<'n, str>> + 'n) -> Candidates<'n> {
    Box::new(names)
}

fn symbol_type(symbol: &Symbol) -> u8 {
    symbol.st_info & 0xf
}

/// Checks that a symbol is at the first instruction of a function. Returns the offset of this instruction in
/// the file.
fn judge(main: &ElfFile, symbol: &Symbol, text: &[u8]) -> Result<FileOffset, Refusal> {
    match symbol.st_shndx.get(LittleEndian) {
        elf::SHN_UNDEF => return Err(Refusal::Imported),
        elf::SHN_ABS => return Err(Refusal::Absolute),
        elf::SHN_COMMON => return Err(Refusal::Data),
        _ => {}
    }
    let address = VirtualAddress(symbol.st_value.get(LittleEndian));
    match symbol_type(symbol) {
        elf::STT_FUNC | elf::STT_GNU_IFUNC => {}
        elf::STT_NOTYPE if main.code_sections().is_plt(address) => return Err(Refusal::Plt),
        elf::STT_NOTYPE => return Err(Refusal::Untyped),
        _ => return Err(Refusal::Data),
    }
    judge_code(main, address, text)
}

/// Checks that the function at an address can have a probe.
fn judge_code(main: &ElfFile, address: VirtualAddress, text: &[u8]) -> Result<FileOffset, Refusal> {
    if main.code_sections().is_plt(address) {
        return Err(Refusal::Plt);
    }
    let offset = main.segments().code_offset_of(address).ok_or(Refusal::NotCode)?;
    if !main.code_sections().may_be_code(address) {
        return Err(Refusal::NotCode);
    }
    if main.segments().containing(address).is_some_and(|segment| segment.writable) {
        return Err(Refusal::WritableCode);
    }
    if is_cold_part(text) {
        return Err(Refusal::ColdPart);
    }
    Ok(offset)
}

/// Whether a name is `f.cold` or `f.cold.3`, also after the suffix of a clone (`f.isra.0.cold`).
fn is_cold_part(text: &[u8]) -> bool {
    let without_number = text.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(text, |last| {
        let (name, number) = text.split_at(last + 1);
        if number.is_empty() { name } else { name.strip_suffix(b".").unwrap_or(name) }
    });
    without_number.len() > 5 && without_number.ends_with(b".cold")
}

/// The size, cut at the end of the segment.
fn clamp(main: &ElfFile, address: VirtualAddress, size: u64) -> u64 {
    main.segments()
        .containing(address)
        .map_or(0, |segment| size.min(segment.file_size.saturating_sub(address.0 - segment.address.0)))
}

/// Sorts, and keeps each name, reason and place once. Drops each name that a function or IFUNC also has,
/// because `.symtab` and `.dynsym` may differ about one name.
fn without_accepted(
    mut refused: Vec<RefusedSymbol>,
    functions: &[FunctionSymbol],
    indirect: &[IndirectFunction],
) -> Vec<RefusedSymbol> {
    refused.sort_by(|a, b| {
        (a.name.as_str(), a.refusal, a.part, a.name.table()).cmp(&(
            b.name.as_str(),
            b.refusal,
            b.part,
            b.name.table(),
        ))
    });
    let mut accepted = vec![false; refused.len()];
    let names = functions.iter().map(|function| &function.names);
    for name in names.chain(indirect.iter().map(|function| &function.names)).flat_map(FunctionNames::iter) {
        let name = name.as_str();
        let first = refused.partition_point(|symbol| symbol.name.as_str() < name);
        if accepted.get(first).is_none_or(|accepted| *accepted) {
            continue;
        }
        let same = refused[first..].iter().take_while(|symbol| symbol.name.as_str() == name).count();
        accepted[first..first + same].fill(true);
    }
    let mut accepted = accepted.into_iter();
    refused.retain(|_| accepted.next() == Some(false));
    refused.dedup_by(|b, a| (a.name.as_str(), a.refusal, a.part) == (b.name.as_str(), b.refusal, b.part));
    refused
}

#[cfg(test)]
mod tests;
