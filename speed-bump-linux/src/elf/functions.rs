//! The functions of a file: the union of its symbol tables. Sorted into functions that can be probed,
//! functions chosen at run time (IFUNC), and symbols that are refused, with the reason.

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

/// The most symbols that we keep of one file and its debug files: twenty times as many as the largest
/// libraries have that we design for. Each takes some 200 bytes.
const SYMBOLS_LIMIT: usize = 1 << 20;
/// The most bytes of their names. Symbols may share the bytes of a name in the file, but not here.
const NAMES_LIMIT: usize = 128 << 20;

/// A function with code in the file.
#[derive(Clone, Debug)]
pub struct FunctionSymbol {
    /// Address of its first instruction, as the file counts.
    pub address: VirtualAddress,
    /// Its size in bytes; 0 if no table says (hand-written assembly).
    pub size: u64,
    /// Where its first instruction lies in the file.
    pub offset: FileOffset,
    /// All names at this address.
    pub names: FunctionNames,
}

/// An `STT_GNU_IFUNC`: a name whose code is chosen by a resolver when the program starts. Its address is the
/// resolver's, which runs once, so a probe there would never see a call.
#[derive(Clone, Debug)]
pub struct IndirectFunction {
    /// Address of the resolver, as the file counts. [`resolve_indirect`](super::resolve_indirect) finds what
    /// it chose.
    pub resolver: VirtualAddress,
    /// All names of it.
    pub names: FunctionNames,
}

/// A symbol that cannot be probed.
#[derive(Clone, Debug)]
pub struct RefusedSymbol {
    /// Name as in the symbol table, with its demangled forms.
    pub name: SymbolName,
    /// What keeps a probe from it.
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

/// Why a symbol cannot be probed. A breakpoint in data would corrupt it, so we refuse everything that is not
/// surely the first instruction of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// Undefined here.
    #[error("it is imported: its code is in another file, name that one")]
    Imported,
    /// In `.plt` and its relatives.
    #[error("it is an import stub (PLT): its code is in another file, name that one")]
    Plt,
    /// `STT_OBJECT`, `STT_COMMON` or `STT_TLS`.
    #[error("it is data, not a function")]
    Data,
    /// `STT_NOTYPE`: a label, which may stand before data.
    #[error(
        "it is a label without a type, which may mark data (assembly: declare it `.type NAME, @function`)"
    )]
    Untyped,
    /// `SHN_ABS`.
    #[error("it is a constant, not an address")]
    Absolute,
    /// Outside executable segments and sections, or without file backing.
    #[error("its address is not in an executable part of the file")]
    NotCode,
    /// In a segment that is also writable; the kernel does not probe those.
    #[error("its code is writable, and the kernel places no probes there")]
    WritableCode,
    /// GCC's and LLVM's `f.cold`: the unlikely part of `f`, jumped to and never called.
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

/// A symbol of a file, of any kind.
#[derive(Clone, Copy, Debug)]
pub enum Named<'f> {
    /// Can be probed.
    Function(&'f FunctionSymbol),
    /// Is chosen at run time.
    Indirect(&'f IndirectFunction),
    /// Cannot be probed.
    Refused(&'f RefusedSymbol),
}

impl Functions {
    /// All symbols, each with the names that a user may write for it: functions first, then IFUNCs, then
    /// those that cannot be probed.
    ///
    /// Demangles only names for which `demangles` returns true.
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

    /// Functions by address; aliases are one function.
    pub fn functions(&self) -> &[FunctionSymbol] {
        &self.functions
    }

    /// IFUNCs by the address of their resolvers.
    pub fn indirect(&self) -> &[IndirectFunction] {
        &self.indirect
    }

    /// The symbols that cannot be probed, by name. None shares its name with a function or IFUNC.
    pub fn refused(&self) -> &[RefusedSymbol] {
        &self.refused
    }

    /// How much memory they take, in bytes, roughly.
    pub fn bytes(&self) -> usize {
        let functions = self.functions.iter().map(|of| size_of::<FunctionSymbol>() + of.names.bytes());
        let indirect = self.indirect.iter().map(|of| size_of::<IndirectFunction>() + of.names.bytes());
        let refused = self.refused.iter().map(|of| size_of::<RefusedSymbol>() + of.name.text_bytes());
        functions.chain(indirect).chain(refused).sum()
    }

    /// The tables that the symbols came from. Empty if the file is stripped and we found no debug file.
    pub fn tables(&self) -> &[TableKind] {
        &self.tables
    }

    /// Tables that exist and that we could not use: debug files that do not match, broken `.gnu_debugdata`.
    /// All other tables are complete.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The function that contains an address; where sizes are unknown, the one that begins there.
    pub fn containing(&self, address: VirtualAddress) -> Option<&FunctionSymbol> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let function = &self.functions[after.checked_sub(1)?];
        let distance = address.0 - function.address.0;
        (distance < function.size.max(1)).then_some(function)
    }
}

impl ElfFile {
    /// Reads the functions that the file itself names: `.symtab`, `.dynsym`, `.gnu_debugdata`, and in Go
    /// programs without a `.symtab` `.gopclntab`.
    ///
    /// # Errors
    /// [`ElfError`] when the file's own tables cannot be read.
    pub fn functions(&self) -> Result<Functions, ElfError> {
        let mut found = Collector::new(self);
        found.own_tables()?;
        Ok(found.finish())
    }

    /// Reads the functions that the file and its separate debug files name. We look debug files up by build
    /// id and `.gnu_debuglink` below `root`; `path` is the file's own path there. `effort` bounds how much we
    /// read to check that they belong to the file.
    ///
    /// # Errors
    /// As [`ElfFile::functions`]; what is wrong with a debug file is in [`Functions::warnings`].
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

/// A symbol that passed, before aliases are joined.
struct Entry {
    address: VirtualAddress,
    size: u64,
    offset: FileOffset,
    indirect: bool,
    name: SymbolName,
}

struct Collector<'f> {
    /// The file whose segments decide whether an address is code, for symbols of its debug files too.
    main: &'f ElfFile,
    entries: Vec<Entry>,
    refused: Vec<RefusedSymbol>,
    tables: Vec<TableKind>,
    warnings: Vec<String>,
    /// Bytes of the names that were kept.
    names: usize,
    /// Symbols that were left out: for the length of their names, and for the total.
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
            // A file that is not stripped has the same names in its symbol table.
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

    /// Adds the functions of a Go program's own table, if it has one.
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

    /// Whether there is room for a symbol whose name has `length` bytes; counts it.
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

    /// Adds the symbols of a file; `kind` is the kind of its `.symtab`.
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
            // Mapping symbols ($x, $d) and symbols without a name are left out. Swift's names begin with `$`
            // too, and have a type.
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

    /// Reports which symbols were left out.
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
        // A resolver may have a name of its own, so functions and IFUNCs at one address stay apart.
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

/// Checks that a symbol is the first instruction of a function, and returns where that lies in the file.
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

/// Checks that a function that begins at an address can be probed.
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

/// Matches `f.cold`, `f.cold.3`, and also after a clone's suffix (`f.isra.0.cold`).
fn is_cold_part(text: &[u8]) -> bool {
    let without_number = text.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(text, |last| {
        let (name, number) = text.split_at(last + 1);
        if number.is_empty() { name } else { name.strip_suffix(b".").unwrap_or(name) }
    });
    without_number.len() > 5 && without_number.ends_with(b".cold")
}

/// The size, cut to what the segment holds.
fn clamp(main: &ElfFile, address: VirtualAddress, size: u64) -> u64 {
    main.segments()
        .containing(address)
        .map_or(0, |segment| size.min(segment.file_size.saturating_sub(address.0 - segment.address.0)))
}

/// Sorts, keeps each name, reason and place once, and drops names that a function has too: `.symtab` and
/// `.dynsym` may differ about one name.
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
