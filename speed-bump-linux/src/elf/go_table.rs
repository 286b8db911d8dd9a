//! `.gopclntab`: the names of a Go program's functions. Go's runtime needs this table for tracebacks, so
//! stripped programs have it too.
//!
//! The format is from Go's `src/debug/gosym/pclntab.go` and `src/runtime/symtab.go`, in versions 1.2, 1.16,
//! 1.18 and 1.20.

use object::LittleEndian;

use super::{error::ElfError, file::ElfFile, tables::Tables};
use crate::{bounds::NAME_BYTES, units::VirtualAddress};

/// The most functions in a table. Each function takes at least 8 bytes in the table. The largest programs of
/// Kubernetes have 200,000 functions.
const FUNCTIONS_LIMIT: usize = 1 << 20;
/// The linker's names for the section. The second is for position-independent programs.
const SECTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

/// A function in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoFunction<'t> {
    /// The address of the function's first instruction, as in the file's headers.
    pub address: VirtualAddress,
    /// The number of bytes up to the next function.
    pub size: u64,
    pub name: &'t [u8],
}

/// The layout of the table, which depends on the version of Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// From 1.2 on: addresses are whole, and names are offsets from the beginning of the table.
    Go12,
    /// From 1.16 on: names have their own section.
    Go116,
    /// From 1.18 on: addresses are offsets from the beginning of the text.
    Go118,
}

/// The decoded header.
struct Header {
    layout: Layout,
    functions: usize,
    /// The address at which the text begins, from 1.18 on; 0 if the dynamic loader writes it.
    text: u64,
    /// The offsets of the names and of the list of functions in the table.
    names: usize,
    list: usize,
}

/// The functions in the table, sorted by address. `text` is the address at which the text begins, if the
/// table does not give it.
pub fn parse(table: &[u8], text: Option<u64>) -> Result<Vec<GoFunction<'_>>, &'static str> {
    let header = header(table)?;
    if header.functions > FUNCTIONS_LIMIT {
        return Err("it has more functions than any program");
    }
    let text = if header.text == 0 { text.unwrap_or(0) } else { header.text };
    let list = table.get(header.list..).ok_or("its functions lie outside of it")?;
    // The list has, for each function, its address and the offset of its record. After the last function it
    // has the end address.
    let width = if header.layout == Layout::Go118 { 4 } else { 8 };
    let number = |at: usize| if width == 4 { u32_at(list, at).map(u64::from) } else { u64_at(list, at) };
    let begin = |index: usize| {
        let from_text = number(index.checked_mul(2 * width)?)?;
        if header.layout == Layout::Go118 { text.checked_add(from_text) } else { Some(from_text) }
    };
    let mut found = Vec::new();
    for index in 0..header.functions {
        let place = number(index * 2 * width + width).and_then(|place| usize::try_from(place).ok());
        let (Some(address), Some(end), Some(place)) = (begin(index), begin(index + 1), place) else {
            return Err("it ends before its last function");
        };
        let size = end.checked_sub(address).ok_or("its functions are not in the order of their addresses")?;
        // The record begins with the address, which has the same width as in the list. The name follows.
        let from = if header.layout == Layout::Go12 { 0 } else { header.list };
        let name = from.checked_add(place).and_then(|at| u32_at(table, at.checked_add(width)?));
        let name = name.and_then(|name| header.names.checked_add(usize::try_from(name).ok()?));
        let name = name.and_then(|at| table.get(at..)).ok_or("a function's name lies outside of it")?;
        let shown = name.get(..NAME_BYTES + 1).unwrap_or(name);
        let end = shown.iter().position(|byte| *byte == 0).unwrap_or(shown.len());
        found.push(GoFunction { address: VirtualAddress(address), size, name: &shown[..end] });
    }
    Ok(found)
}

fn header(table: &[u8]) -> Result<Header, &'static str> {
    let layout = match u32_at(table, 0) {
        Some(0xffff_fffb) => Layout::Go12,
        Some(0xffff_fffa) => Layout::Go116,
        Some(0xffff_fff0 | 0xffff_fff1) => Layout::Go118,
        _ => return Err("it is of a version of Go that is not known"),
    };
    // The expected bytes are: two zeros, the smallest size of an instruction, and the size of a pointer.
    if !matches!(table.get(4..8), Some([0, 0, 1 | 2 | 4, 8])) {
        return Err("its header is not that of a 64-bit program");
    }
    let word = |index: usize| u64_at(table, 8 + 8 * index);
    let place = |index| word(index).and_then(|place| usize::try_from(place).ok());
    let short = "its header is cut off";
    let functions = place(0).ok_or(short)?;
    Ok(match layout {
        Layout::Go12 => Header { layout, functions, text: 0, names: 0, list: 16 },
        Layout::Go116 => {
            let (names, list) = place(2).zip(place(6)).ok_or(short)?;
            Header { layout, functions, text: 0, names, list }
        }
        Layout::Go118 => {
            let (names, list) = place(3).zip(place(7)).ok_or(short)?;
            Header { layout, functions, text: word(2).ok_or(short)?, names, list }
        }
    })
}

/// The address of the text. If the dynamic loader writes this address into the table's header, we take it
/// from the relocation. Otherwise it is the beginning of the text section.
fn text_of(tables: &Tables<'_>, section_address: u64) -> Result<Option<u64>, ElfError> {
    /// The offset of the address in the header: after the magic number and the numbers of functions and
    /// files.
    const TEXT: u64 = 24;
    let wanted = section_address.checked_add(TEXT);
    for (_, relocations) in tables.dynamic_relocations()? {
        let here = relocations.iter().find(|of| Some(of.r_offset.get(LittleEndian)) == wanted);
        if let Some(relocation) = here {
            return Ok(Some(relocation.r_addend.get(LittleEndian).cast_unsigned()));
        }
    }
    Ok(tables.section_named(b".text").map(|section| section.sh_addr.get(LittleEndian)))
}

/// Calls `each` for each function in the table. Returns whether the file has such a table.
pub(super) fn for_each(file: &ElfFile, mut each: impl FnMut(GoFunction<'_>)) -> Result<bool, ElfError> {
    let cache = file.cache();
    let tables = Tables::read(file, &cache)?;
    let Some(section) = SECTIONS.iter().find_map(|name| tables.section_named(name)) else {
        return Ok(false);
    };
    let table = tables.data(section, "section .gopclntab")?;
    let text = text_of(&tables, section.sh_addr.get(LittleEndian))?;
    let functions = parse(table, text).map_err(|what| file.corrupt(what))?;
    functions.into_iter().for_each(&mut each);
    Ok(true)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const NAMES: &[u8] = b"main.main\0main.(*T[...]).M\0";

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn halves(halves: &[u32]) -> Vec<u8> {
        halves.iter().flat_map(|half| half.to_le_bytes()).collect()
    }

    /// A table with two functions, at 0x1000 and 0x1040, in the layout of Go 1.20.
    fn go_1_20() -> Vec<u8> {
        let (names, list) = (72, 104);
        let head = [halves(&[0xffff_fff1, 0x0801_0000]), words(&[2, 1, 0x1000, names, 0, 0, 0, list])];
        let mut table = head.concat();
        table.extend(NAMES);
        table.resize(104, 0);
        // For each function, the list has its address and the offset of its record. The end follows. Then
        // come the address and the name of each function.
        table.extend(halves(&[0, 20, 0x40, 28, 0x60, 0, 0, 0x40, 10]));
        table
    }

    /// The same functions in the layout of Go 1.16.
    fn go_1_16() -> Vec<u8> {
        let head = [halves(&[0xffff_fffa, 0x0801_0000]), words(&[2, 1, 64, 0, 0, 0, 96])];
        let mut table = head.concat();
        table.extend(NAMES);
        table.resize(96, 0);
        table.extend(words(&[0x1000, 40, 0x1040, 52, 0x1060]));
        table.extend([words(&[0x1000]), halves(&[0]), words(&[0x1040]), halves(&[10])].concat());
        table
    }

    /// The same functions in the layout of Go 1.2.
    fn go_1_2() -> Vec<u8> {
        let mut table = [halves(&[0xffff_fffb, 0x0801_0000]), words(&[2])].concat();
        table.extend(words(&[0x1000, 56, 0x1040, 68, 0x1060]));
        table.extend([words(&[0x1000]), halves(&[80]), words(&[0x1040]), halves(&[90])].concat());
        table.extend(NAMES);
        table
    }

    #[test]
    fn functions_of_each_version_are_read() {
        for table in [go_1_20(), go_1_16(), go_1_2()] {
            let found = parse(&table, None).unwrap();
            let found: Vec<_> = found.iter().map(|of| (of.address.0, of.size, of.name)).collect();
            let expected = [(0x1000, 0x40, &b"main.main"[..]), (0x1040, 0x20, b"main.(*T[...]).M")];
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_text_is_where_the_file_says_if_the_table_does_not() {
        let mut table = go_1_20();
        table[24..32].fill(0);
        let first = |text| parse(&table, text).unwrap()[0].address.0;
        assert_eq!([first(Some(0x7000)), first(None)], [0x7000, 0]);
    }

    #[test]
    fn other_tables_are_refused() {
        for table in [go_1_20(), go_1_16(), go_1_2()] {
            for length in 0..table.len() - NAMES.len() {
                let refused = parse(&table[..length], None);
                assert!(length > 60 || refused.is_err(), "{length}");
            }
            let with = |at: usize, byte: u8| {
                let mut table = table.clone();
                table[at] = byte;
                parse(&table, None).map(|found| found.len())
            };
            assert!([with(0, 1), with(4, 1), with(7, 4), with(15, 0x7f)].iter().all(Result::is_err));
        }
        let mut backwards = go_1_20();
        backwards[104] = 0x50;
        assert!(parse(&backwards, None).unwrap_err().contains("order"));
    }

    proptest! {
        #[test]
        fn no_table_panics(
            changes in proptest::collection::vec((0_usize..140, any::<u8>()), 0..12),
            text in any::<Option<u64>>(),
        ) {
            for mut table in [go_1_20(), go_1_16(), go_1_2()] {
                for (at, byte) in &changes {
                    if let Some(place) = table.get_mut(*at) {
                        *place = *byte;
                    }
                }
                for function in parse(&table, text).unwrap_or_default() {
                    prop_assert!(function.name.len() <= NAME_BYTES + 1);
                }
            }
        }
    }
}
