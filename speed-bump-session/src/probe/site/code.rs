//! The code of one ELF file, for choosing a site: bytes by address, and where functions start. Knows no ELF:
//! the code that opens the file passes segments and symbols.

use std::{borrow::Cow, fmt::Debug, ops::Range, sync::OnceLock};

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};

use super::calls;
use crate::units::VirtualAddress;

/// One executable segment, or section, of a file.
#[derive(Clone, Copy, Debug)]
pub struct CodeSegment<'a> {
    /// Where its first byte lies.
    pub address: VirtualAddress,
    /// Its bytes as they are in the file.
    pub bytes: &'a [u8],
}

/// Reads code on demand.
pub trait ReadCode: Debug {
    /// Fills the buffer from an address on, as far as there is readable code; returns the number of bytes.
    fn read_code(&self, address: VirtualAddress, buffer: &mut [u8]) -> usize;
}

/// The source of the segments' bytes.
#[derive(Debug)]
enum Bytes<'a> {
    Here(Vec<CodeSegment<'a>>),
    /// With the address ranges of the segments.
    InFile(&'a dyn ReadCode, Vec<Range<u64>>),
}

/// A symbol that lies in code, whatever its type and binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSymbol {
    /// Its value.
    pub address: VirtualAddress,
    /// Its size in bytes; 0 where the file gives none.
    pub size: u64,
    /// Whether it is a piece of another function, only entered by jumps ([`is_fragment_name`]).
    pub fragment: bool,
}

/// Whether a symbol with this name is a moved piece of a function: `f.cold` and `f.cold.0` of compilers and
/// BOLT, `f.warm` of BOLT, `f.__part.1` of Propeller. Such a piece is not a function: jumps enter it, at
/// several places.
pub fn is_fragment_name(name: &str) -> bool {
    function_of_fragment(name).is_some()
}

/// The function that a symbol with this name is a moved piece of.
pub fn function_of_fragment(name: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    [".cold", ".warm", ".__part"].into_iter().find_map(|mark| {
        let (function, number) = name.rsplit_once(mark)?;
        let is_one =
            !function.is_empty() && (number.is_empty() || number.strip_prefix('.').is_some_and(is_number));
        is_one.then_some(function)
    })
}

/// Where there may be code that only the unwinder enters: exception handlers, which compilers move to pieces
/// elsewhere, and which jump back into their function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LandingPads {
    /// The symbols are from `.symtab` or from debug data, so they name every moved piece.
    InSymbols,
    /// The file names no pieces; only the functions in these ranges have handlers. Sorted, without overlap.
    Of(Vec<Range<u64>>),
    /// The file names no pieces, and we do not know which functions have handlers.
    Anywhere,
}

impl LandingPads {
    /// Reads which functions have handlers from a file's `.eh_frame` and its address: those whose description
    /// names language-specific data (Linux Standard Base 5.0, "Exception Frames").
    pub fn of_eh_frame(bytes: &[u8], address: VirtualAddress) -> Self {
        let section = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(address.0);
        let mut entries = section.entries(&bases);
        let mut functions = Vec::new();
        loop {
            match entries.next() {
                Ok(None) => break,
                Ok(Some(CieOrFde::Cie(_))) => {}
                Ok(Some(CieOrFde::Fde(partial))) => match partial.parse(EhFrame::cie_from_offset) {
                    Ok(function) if function.lsda().is_some() => {
                        let start = function.initial_address();
                        functions.push(start..start.saturating_add(function.len()));
                    }
                    Ok(_) => {}
                    Err(_) => return Self::Anywhere,
                },
                Err(_) => return Self::Anywhere,
            }
        }
        functions.sort_unstable_by_key(|function| (function.start, function.end));
        Self::Of(functions)
    }
}

/// The most symbols that may overlap a function on either side. Without a limit, hostile tables could make
/// all overlap all.
const OVERLAPS_LIMIT: usize = 4_096;

/// How many symbols before an address we search for the piece that contains it: there may be labels within
/// one.
const FRAGMENTS_NEAR: usize = 16;

/// The executable bytes of one file, and every symbol in them.
#[derive(Debug)]
pub struct CodeMap<'a> {
    bytes: Bytes<'a>,
    /// By address.
    symbols: Vec<CodeSymbol>,
    /// For each symbol, the furthest end of it and those before it: finds overlaps without a search tree.
    furthest_end: Vec<u64>,
    landing_pads: LandingPads,
    got: Vec<Range<u64>>,
    /// Destinations of branches in fragments, sorted, with their sources; filled by the architecture's
    /// module. `None` if there are too many.
    pub(super) fragment_branches: OnceLock<Option<Vec<(u64, u64)>>>,
    pub(super) direct_calls: calls::Kept,
}

impl<'a> CodeMap<'a> {
    /// Takes a file's executable segments and every symbol in them: from `.symtab`, from separate debug data,
    /// or from `.dynsym` where there is no better.
    pub fn new(
        segments: impl IntoIterator<Item = CodeSegment<'a>>,
        symbols: impl IntoIterator<Item = CodeSymbol>,
        landing_pads: LandingPads,
    ) -> Self {
        Self::with(Bytes::Here(segments.into_iter().map(within_addresses).collect()), symbols, landing_pads)
    }

    /// The same for a file whose code is read on demand; `segments` are the address ranges of its executable
    /// segments.
    pub fn in_file(
        file: &'a dyn ReadCode,
        segments: impl IntoIterator<Item = Range<u64>>,
        symbols: impl IntoIterator<Item = CodeSymbol>,
        landing_pads: LandingPads,
    ) -> Self {
        Self::with(Bytes::InFile(file, segments.into_iter().collect()), symbols, landing_pads)
    }

    fn with(
        bytes: Bytes<'a>,
        symbols: impl IntoIterator<Item = CodeSymbol>,
        landing_pads: LandingPads,
    ) -> Self {
        let mut symbols: Vec<_> = symbols.into_iter().collect();
        symbols.sort_unstable_by_key(|symbol| symbol.address);
        let furthest_end = symbols
            .iter()
            .scan(0, |end, symbol| {
                *end = symbol.address.0.saturating_add(symbol.size).max(*end);
                Some(*end)
            })
            .collect();
        Self {
            bytes,
            symbols,
            furthest_end,
            landing_pads,
            got: Vec::new(),
            fragment_branches: OnceLock::new(),
            direct_calls: OnceLock::new(),
        }
    }

    /// Sets where the file's global offset table is (`.got`, `.got.plt`). Its slots hold the addresses of
    /// symbols, so a jump through one is a tail call; without this, such a jump could go anywhere.
    #[must_use]
    pub fn with_got(mut self, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.got.extend(ranges);
        self
    }

    pub(super) fn in_got(&self, address: u64) -> bool {
        self.got.iter().any(|range| range.contains(&address))
    }

    /// The address ranges of its code.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        match &self.bytes {
            Bytes::Here(segments) => {
                let end = |segment: &CodeSegment<'_>| segment.address.0 + segment.bytes.len() as u64;
                segments.iter().map(|segment| segment.address.0..end(segment)).collect()
            }
            Bytes::InFile(_, segments) => segments.clone(),
        }
    }

    /// The bytes from an address on, at most `most`, and none beyond its segment; empty if there is no code.
    pub(super) fn bytes_at(&self, address: u64, most: usize) -> Cow<'a, [u8]> {
        match &self.bytes {
            Bytes::Here(segments) => {
                let bytes = segments.iter().find_map(|segment| {
                    let skip = usize::try_from(address.checked_sub(segment.address.0)?).ok()?;
                    segment.bytes.get(skip..).filter(|bytes| !bytes.is_empty())
                });
                let bytes = bytes.unwrap_or_default();
                Cow::Borrowed(bytes.get(..most).unwrap_or(bytes))
            }
            Bytes::InFile(file, segments) => {
                let Some(segment) = segments.iter().find(|segment| segment.contains(&address)) else {
                    return Cow::default();
                };
                let left = usize::try_from(segment.end - address).unwrap_or(usize::MAX);
                let mut bytes = vec![0; most.min(left)];
                let length = file.read_code(VirtualAddress(address), &mut bytes);
                bytes.truncate(length);
                Cow::Owned(bytes)
            }
        }
    }

    /// Whether a function, rather than a fragment of one, starts exactly here.
    pub(super) fn is_entry(&self, address: u64) -> bool {
        let first = self.symbols.partition_point(|symbol| symbol.address.0 < address);
        self.symbols[first..]
            .iter()
            .take_while(|symbol| symbol.address.0 == address)
            .any(|symbol| !symbol.fragment)
    }

    /// The next symbol after an address: another way in.
    pub(super) fn next_symbol(&self, address: u64) -> Option<u64> {
        let next = self.symbols.partition_point(|symbol| symbol.address.0 <= address);
        self.symbols.get(next).map(|symbol| symbol.address.0)
    }

    /// The union of a range and every symbol that overlaps it, directly or through others. The whole address
    /// space, if more symbols overlap than in any real program.
    pub(super) fn overlap(&self, range: &Range<u64>) -> Range<u64> {
        let (mut start, mut end) = (range.start, range.end);
        let mut before = self.symbols.partition_point(|symbol| symbol.address.0 < start);
        let first = before.saturating_sub(OVERLAPS_LIMIT);
        while before > first && self.furthest_end[before - 1] > start {
            before -= 1;
            start = self.symbols[before].address.0;
            end = end.max(start.saturating_add(self.symbols[before].size));
        }
        if before == first && before > 0 && self.furthest_end[before - 1] > start {
            return 0..u64::MAX;
        }
        let mut next = before;
        while let Some(symbol) = self.symbols.get(next).filter(|symbol| symbol.address.0 < end) {
            end = end.max(symbol.address.0.saturating_add(symbol.size));
            next += 1;
            if next - before > OVERLAPS_LIMIT {
                return 0..u64::MAX;
            }
        }
        start..end
    }

    /// The moved piece of a function that contains an address.
    pub(super) fn fragment_at(&self, address: u64) -> Option<Range<u64>> {
        let after = self.symbols.partition_point(|symbol| symbol.address.0 <= address);
        let near = self.symbols.get(after.saturating_sub(FRAGMENTS_NEAR)..after)?.iter().rev();
        let mut pieces = near
            .filter(|symbol| symbol.fragment)
            .map(|symbol| symbol.address.0..symbol.address.0.saturating_add(symbol.size));
        pieces.find(|piece| piece.contains(&address))
    }

    pub(super) fn fragments(&self) -> impl Iterator<Item = Range<u64>> {
        self.symbols
            .iter()
            .filter(|symbol| symbol.fragment)
            .map(|symbol| symbol.address.0..symbol.address.0.saturating_add(symbol.size))
    }

    /// Whether code that no symbol names may be part of the function in this range.
    pub(super) fn hides_landing_pads(&self, range: &Range<u64>) -> bool {
        match &self.landing_pads {
            LandingPads::InSymbols => false,
            LandingPads::Of(functions) => {
                let after = functions.partition_point(|function| function.end <= range.start);
                functions.get(after).is_some_and(|function| function.start < range.end)
            }
            LandingPads::Anywhere => true,
        }
    }
}

/// Cuts off bytes beyond the last address, so that no end overflows.
fn within_addresses(segment: CodeSegment<'_>) -> CodeSegment<'_> {
    let room = usize::try_from(u64::MAX - segment.address.0).unwrap_or(usize::MAX);
    CodeSegment { bytes: segment.bytes.get(..room).unwrap_or(segment.bytes), ..segment }
}

/// A function for which to choose a site.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCode<'a> {
    /// The file that it lies in.
    pub map: &'a CodeMap<'a>,
    /// Its first instruction.
    pub entry: VirtualAddress,
    /// Its size in bytes; `None` or 0 if the file gives none: then only the entry is considered.
    pub size: Option<u64>,
    /// Whether the process runs with shadow stacks (`shstk` in `x86_Thread_features` of `/proc/PID/status`).
    /// Then a call is never probed, since kernels that emulate it without pushing to the shadow stack would
    /// kill the process at the return.
    pub shadow_stack: bool,
}

#[cfg(test)]
mod tests;
