//! The code of one ELF file, for choosing a site: bytes by address, and where functions start. This module
//! does not read ELF: the code that opens the file passes segments and symbols.

use std::{borrow::Cow, fmt::Debug, ops::Range, sync::OnceLock};

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};

use super::calls;
use crate::units::VirtualAddress;

/// One executable segment, or section, of a file.
#[derive(Clone, Copy, Debug)]
pub struct CodeSegment<'a> {
    /// The address of the segment's first byte.
    pub address: VirtualAddress,
    /// The bytes, as in the file.
    pub bytes: &'a [u8],
}

/// Reads code on demand.
pub trait ReadCode: Debug {
    /// Fills the buffer with code from an address on. Returns the number of bytes; this is smaller than the
    /// buffer where readable code ends.
    fn read_code(&self, address: VirtualAddress, buffer: &mut [u8]) -> usize;
}

/// The source of the segments' bytes.
#[derive(Debug)]
enum Bytes<'a> {
    Here(Vec<CodeSegment<'a>>),
    /// The reader, and the address ranges of the segments.
    InFile(&'a dyn ReadCode, Vec<Range<u64>>),
}

/// A symbol in code, whatever its type and binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSymbol {
    /// The address of the symbol.
    pub address: VirtualAddress,
    /// The size in bytes; 0 if the file gives none.
    pub size: u64,
    /// Whether the symbol names a piece of another function, which only jumps enter ([`is_fragment_name`]).
    pub fragment: bool,
}

/// Whether a symbol with this name is a moved piece of a function: `f.cold` and `f.cold.0` of compilers and
/// BOLT, `f.warm` of BOLT, `f.__part.1` of Propeller. A moved piece is not a function: jumps enter it, at
/// several addresses.
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

/// Where the file may have code that only the unwinder enters: exception handlers. Compilers move handlers to
/// other places, and a handler jumps back into its function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LandingPads {
    /// Every moved piece has a symbol, because the symbols are from `.symtab` or from debug data.
    InSymbols,
    /// Moved pieces have no symbols. Only the functions in these ranges have handlers. The ranges are sorted
    /// and do not overlap.
    Of(Vec<Range<u64>>),
    /// Moved pieces have no symbols, and we do not know which functions have handlers.
    Anywhere,
}

impl LandingPads {
    /// Finds the functions with handlers, from a file's `.eh_frame` and the address of this section. A
    /// function has handlers if its entry in the section refers to language-specific data (Linux Standard
    /// Base 5.0, "Exception Frames").
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
/// all symbols overlap each other.
const OVERLAPS_LIMIT: usize = 4_096;

/// How many symbols before an address we search for the piece that contains it. A piece may contain labels.
const FRAGMENTS_NEAR: usize = 16;

/// The executable bytes of one file, and every symbol in them.
#[derive(Debug)]
pub struct CodeMap<'a> {
    bytes: Bytes<'a>,
    /// Sorted by address.
    symbols: Vec<CodeSymbol>,
    /// For each symbol, the greatest end among this symbol and all symbols before it. With these numbers we
    /// find overlaps without a search tree.
    furthest_end: Vec<u64>,
    landing_pads: LandingPads,
    got: Vec<Range<u64>>,
    /// The destinations of branches in fragments, each with the branch's own address, sorted. The
    /// architecture's module fills this. `None` inside if there are too many.
    pub(super) fragment_branches: OnceLock<Option<Vec<(u64, u64)>>>,
    pub(super) direct_calls: calls::Kept,
}

impl<'a> CodeMap<'a> {
    /// Takes a file's executable segments and every symbol in them. The symbols are from `.symtab`, from
    /// separate debug data, or, if there are neither, from `.dynsym`.
    pub fn new(
        segments: impl IntoIterator<Item = CodeSegment<'a>>,
        symbols: impl IntoIterator<Item = CodeSymbol>,
        landing_pads: LandingPads,
    ) -> Self {
        Self::with(Bytes::Here(segments.into_iter().map(within_addresses).collect()), symbols, landing_pads)
    }

    /// Like [`new`](Self::new), for a file whose code we read on demand. `segments` are the address ranges of
    /// its executable segments.
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

    /// Sets the address ranges of the file's global offset table (`.got`, `.got.plt`). The slots of this
    /// table hold the addresses of symbols, so a jump through a slot is a tail call. If we did not know the
    /// table, the jump could go anywhere.
    #[must_use]
    pub fn with_got(mut self, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.got.extend(ranges);
        self
    }

    pub(super) fn in_got(&self, address: u64) -> bool {
        self.got.iter().any(|range| range.contains(&address))
    }

    /// The address ranges of the code.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        match &self.bytes {
            Bytes::Here(segments) => {
                let end = |segment: &CodeSegment<'_>| segment.address.0 + segment.bytes.len() as u64;
                segments.iter().map(|segment| segment.address.0..end(segment)).collect()
            }
            Bytes::InFile(_, segments) => segments.clone(),
        }
    }

    /// The bytes from an address on, at most `most`, up to the end of the segment. Empty if there is no code.
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

    /// Whether a function starts exactly here. A fragment does not count.
    pub(super) fn is_entry(&self, address: u64) -> bool {
        let first = self.symbols.partition_point(|symbol| symbol.address.0 < address);
        self.symbols[first..]
            .iter()
            .take_while(|symbol| symbol.address.0 == address)
            .any(|symbol| !symbol.fragment)
    }

    /// The next symbol after an address, where other code may enter.
    pub(super) fn next_symbol(&self, address: u64) -> Option<u64> {
        let next = self.symbols.partition_point(|symbol| symbol.address.0 <= address);
        self.symbols.get(next).map(|symbol| symbol.address.0)
    }

    /// The union of a range and every symbol that overlaps it, directly or through others. Returns the whole
    /// address space if more symbols overlap than in any real program.
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

    /// The moved piece of a function that contains this address.
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

    /// Whether the function in this range may have exception handlers that no symbol names.
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

/// Cuts off bytes beyond the last address, so that the end of a range does not overflow.
fn within_addresses(segment: CodeSegment<'_>) -> CodeSegment<'_> {
    let room = usize::try_from(u64::MAX - segment.address.0).unwrap_or(usize::MAX);
    CodeSegment { bytes: segment.bytes.get(..room).unwrap_or(segment.bytes), ..segment }
}

/// A function that needs a site.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCode<'a> {
    /// The code of the function's file.
    pub map: &'a CodeMap<'a>,
    /// The address of the function's first instruction.
    pub entry: VirtualAddress,
    /// The function's size in bytes; `None` or 0 if the file gives none. Without a size, we consider only the
    /// entry.
    pub size: Option<u64>,
    /// Whether the process runs with shadow stacks (`shstk` in `x86_Thread_features` of `/proc/PID/status`).
    /// If so, we never probe a call: some kernels emulate a call without a push to the shadow stack, and
    /// would kill the process at the return.
    pub shadow_stack: bool,
}

#[cfg(test)]
mod tests;
