//! The code of an ELF file as the choice of sites takes it, read with `object`.

use std::{fs, path::Path};

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind, elf};
use speed_bump_session::probe::site::{CodeMap, CodeSegment, CodeSymbol, LandingPads, is_fragment_name};
use speed_bump_units::units::VirtualAddress;

/// An ELF file, whole.
pub(crate) struct ElfCode {
    data: Vec<u8>,
}

/// A function symbol.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) address: VirtualAddress,
    pub(crate) size: u64,
}

impl ElfCode {
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let data = fs::read(path).ok()?;
        object::File::parse(&*data).is_ok().then_some(Self { data })
    }

    fn file(&self) -> object::File<'_> {
        object::File::parse(&*self.data).expect("an ELF file")
    }

    /// Every function with code in this file, fragments aside.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let file = self.file();
        let functions: Vec<_> = symbols(&file)
            .into_iter()
            .filter(|(_, symbol)| !symbol.fragment)
            .map(|(name, symbol)| Function { name, address: symbol.address, size: symbol.size })
            .collect();
        functions
    }

    pub(crate) fn map(&self) -> CodeMap<'_> {
        let file = self.file();
        let segments: Vec<_> = file
            .segments()
            .filter(|segment| {
                matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0)
            })
            .map(|segment| {
                let (start, length) = segment.file_range();
                let start = usize::try_from(start).unwrap();
                let bytes = &self.data[start..start + usize::try_from(length).unwrap()];
                CodeSegment { address: VirtualAddress(segment.address()), bytes }
            })
            .collect();
        let stripped = file.symbols().next().is_none();
        let landing_pads = match file.section_by_name(".eh_frame").filter(|_| stripped) {
            Some(section) => {
                LandingPads::of_eh_frame(section.data().unwrap(), VirtualAddress(section.address()))
            }
            None => LandingPads::InSymbols,
        };
        CodeMap::new(segments, symbols(&file).into_iter().map(|(_, symbol)| symbol), landing_pads).with_got(
            [".got", ".got.plt"].into_iter().filter_map(|name| {
                let section = file.section_by_name(name)?;
                Some(section.address()..section.address() + section.size())
            }),
        )
    }

    /// Where in the file an address of its code lies.
    pub(crate) fn file_offset(&self, address: VirtualAddress) -> u64 {
        let file = self.file();
        file.segments()
            .find_map(|segment| {
                let skip = address.0.checked_sub(segment.address())?;
                (skip < segment.size()).then(|| segment.file_range().0 + skip)
            })
            .expect("an address in a segment")
    }
}

fn symbols(file: &object::File<'_>) -> Vec<(String, CodeSymbol)> {
    let in_text = |symbol: &object::Symbol<'_, '_>| {
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
        section.is_some_and(|section| section.kind() == object::SectionKind::Text)
    };
    let read = |symbol: object::Symbol<'_, '_>| {
        let name = symbol.name().unwrap_or_default().to_owned();
        let fragment = is_fragment_name(&name);
        let address = VirtualAddress(symbol.address());
        (name, CodeSymbol { address, size: symbol.size(), fragment })
    };
    let is_function =
        |symbol: &object::Symbol<'_, '_>| matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Label);
    let symtab: Vec<_> =
        file.symbols().filter(|symbol| is_function(symbol) && in_text(symbol)).map(read).collect();
    if !symtab.is_empty() {
        return symtab;
    }
    file.dynamic_symbols().filter(|symbol| is_function(symbol) && in_text(symbol)).map(read).collect()
}
