//! The code of a file that is held open, as the choice of sites wants it.
//!
//! The file is mapped, not read: a target may select ten functions of half a gigabyte. A file that is
//! truncated under the mapping ends us with SIGBUS; our links go with us, and the target runs on.

use std::{fs::File, io, ops::Range};

use memmap2::Mmap;
use object::{
    Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SectionKind, SegmentFlags,
    SymbolKind, elf,
};

use super::site::{CodeMap, CodeSegment, CodeSymbol, LandingPads, is_fragment_name};
use crate::units::VirtualAddress;

/// A mapped ELF file.
#[derive(Debug)]
pub struct CodeFile {
    map: Mmap,
}

impl CodeFile {
    /// Maps a file.
    ///
    /// # Errors
    /// What `mmap` returns.
    pub fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is private and only read. Its bytes may change when somebody rewrites the
        // file; they are decoded as data, checked at each step, and never trusted to stay the same.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self { map })
    }

    /// Executable segments and the symbols in them.
    ///
    /// # Errors
    /// The file is no ELF file, or its tables are corrupt.
    pub fn code(&self) -> Result<CodeMap<'_>, object::Error> {
        let file = object::File::parse(&*self.map)?;
        let segments = file.segments().filter_map(|segment| {
            let SegmentFlags::Elf { p_flags } = segment.flags() else { return None };
            let bytes = (p_flags & elf::PF_X != 0).then(|| segment.data().ok()).flatten()?;
            Some(CodeSegment { address: VirtualAddress(segment.address()), bytes })
        });
        let named: Vec<CodeSymbol> = file.symbols().filter_map(|symbol| in_code(&file, &symbol)).collect();
        let (symbols, landing_pads) = if named.is_empty() {
            let exported = file.dynamic_symbols().filter_map(|symbol| in_code(&file, &symbol)).collect();
            let handlers =
                file.section_by_name(".eh_frame").map_or(Ok(LandingPads::Anywhere), |section| {
                    let address = VirtualAddress(section.address());
                    section.data().map(|data| LandingPads::of_eh_frame(data, address))
                })?;
            (exported, handlers)
        } else {
            (named, LandingPads::InSymbols)
        };
        Ok(CodeMap::new(segments, symbols, landing_pads).with_got(got(&file)))
    }
}

/// Where the dynamic loader keeps the addresses of imported functions.
fn got(file: &object::File<'_>) -> Vec<Range<u64>> {
    let range = |name| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address().saturating_add(section.size()))
    };
    [".got", ".got.plt"].into_iter().filter_map(range).collect()
}

fn in_code(file: &object::File<'_>, symbol: &object::Symbol<'_, '_>) -> Option<CodeSymbol> {
    if !matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Label) {
        return None;
    }
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    (section.kind() == SectionKind::Text).then(|| CodeSymbol {
        address: VirtualAddress(symbol.address()),
        size: symbol.size(),
        fragment: symbol.name_bytes().is_ok_and(|name| is_fragment_name(&String::from_utf8_lossy(name))),
    })
}
