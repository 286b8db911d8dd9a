use super::*;

fn symbol(address: u64, size: u64) -> CodeSymbol {
    CodeSymbol { address: VirtualAddress(address), size, fragment: false }
}

#[test]
fn fragments_are_told_by_name() {
    for name in ["f.cold", "f.cold.0", "_ZN1a1bEv.cold.12", "f.part.0.cold", "f.warm", "f.__part.3"] {
        assert!(is_fragment_name(name), "{name}");
    }
    for name in ["f", "f.coldness", "cold", ".cold", "f.part.0", "f.cold.x", "f.cold.", "", "f.constprop.0"] {
        assert!(!is_fragment_name(name), "{name}");
    }
}

#[test]
fn overlapping_symbols_are_joined() {
    let map = CodeMap::new(
        [],
        [symbol(0x10, 0x30), symbol(0x20, 4), symbol(0x30, 0x20), symbol(0x60, 0x10), symbol(0x70, 0)],
        LandingPads::InSymbols,
    );
    assert_eq!(map.overlap(&(0x20..0x24)), 0x10..0x50);
    assert_eq!(map.overlap(&(0x10..0x40)), 0x10..0x50);
    assert_eq!(map.overlap(&(0x60..0x70)), 0x60..0x70);
    assert_eq!(map.overlap(&(0x25..0x26)), 0x10..0x50, "no symbol begins there");
    assert_eq!(map.overlap(&(0x70..0x71)), 0x70..0x71, "what ends there does not overlap");
    assert_eq!(map.next_symbol(0x10), Some(0x20));
    assert_eq!(map.next_symbol(0x70), None);
    assert!(map.is_entry(0x70) && !map.is_entry(0x71));
}

/// A file that has code at every address.
#[derive(Debug)]
struct Endless;

impl ReadCode for Endless {
    fn read_code(&self, _: VirtualAddress, buffer: &mut [u8]) -> usize {
        buffer.len()
    }
}

#[test]
fn bytes_of_a_file_end_with_their_segment_too() {
    let map = CodeMap::in_file(&Endless, [0x1000..0x1010, 0x2000..0x2010], [], LandingPads::InSymbols);
    for (address, most, length) in
        [(0x1000, 4, 4), (0x1008, 9, 8), (0x200f, 9, 1), (0x1010, 9, 0), (0xfff, 9, 0)]
    {
        assert_eq!(map.bytes_at(address, most).len(), length, "{address:#x}");
    }
}

#[test]
fn so_many_symbols_overlap_and_no_more() {
    const LIMIT: u64 = OVERLAPS_LIMIT as u64;
    let overlap =
        |symbols: Vec<CodeSymbol>, range| CodeMap::new([], symbols, LandingPads::InSymbols).overlap(&range);
    // Symbols that start one byte after another, from 0x1000 on, and all end at 0x9_0000. `first` starts
    // before them and ends one byte before 0x9_0000.
    let before = |count| (0..count).map(|n| symbol(0x1000 + n, 0x9_0000 - 0x1000 - n));
    let first = [symbol(0x10, 0x9_0000 - 0x10 - 1)];
    assert_eq!(overlap(before(LIMIT).collect(), 0x8_0000..0x8_0001), 0x1000..0x9_0000);
    assert_eq!(overlap(before(LIMIT + 1).collect(), 0x8_0000..0x8_0001), 0..u64::MAX);
    assert_eq!(overlap(first.into_iter().chain(before(LIMIT)).collect(), 0x8_0000..0x8_0001), 0..u64::MAX);
    // A symbol that ends where the lowest symbol begins does not count.
    let touching = [symbol(0x10, 0x1000 - 0x10)].into_iter().chain(before(LIMIT));
    assert_eq!(overlap(touching.collect(), 0x8_0000..0x8_0001), 0x1000..0x9_0000);

    // Symbols that begin within the range, after others that do not overlap it.
    let aside = (0..10).map(|n| symbol(n, 1));
    let behind = |count| aside.clone().chain((0..count).map(|n| symbol(0x1000 + n, 2))).collect();
    assert_eq!(overlap(behind(LIMIT), 0x1000..0x9000), 0x1000..0x9000);
    assert_eq!(overlap(behind(LIMIT + 1), 0x1000..0x9000), 0..u64::MAX);
}

#[test]
fn handlers_hide_landing_pads_of_their_function_alone() {
    let hides = |pads: LandingPads, range| CodeMap::new([], [], pads).hides_landing_pads(&range);
    let of = || LandingPads::Of(vec![0x10..0x20, 0x30..0x40]);
    for (range, hidden) in
        [(0..0x10, false), (0..0x11, true), (0x1f..0x20, true), (0x20..0x30, false), (0x40..0x50, false)]
    {
        assert_eq!(hides(of(), range.clone()), hidden, "{range:x?}");
        assert!(!hides(LandingPads::InSymbols, range.clone()));
        assert!(hides(LandingPads::Anywhere, range));
    }
    assert_eq!(LandingPads::of_eh_frame(&[], VirtualAddress(0)), LandingPads::Of(Vec::new()));
    assert_eq!(LandingPads::of_eh_frame(&[1, 2, 3], VirtualAddress(0)), LandingPads::Anywhere);
}

#[test]
fn functions_with_handlers_are_those_with_data_for_their_language() {
    // `plain` is a common entry (Linux Standard Base 5.0, "Common Information Entry Format"), and `function`
    // an entry for one function: its start and length as absolute words. `handled` also has the address of
    // its table of handlers.
    let plain = [&[16, 0, 0, 0, 0, 0, 0, 0, 1], b"zR\0".as_slice(), &[1, 0x78, 16, 1, 3, 0, 0, 0]].concat();
    let function = [16, 0, 0, 0, 24, 0, 0, 0, 0, 0x10, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0];
    let with_handlers =
        [&[16, 0, 0, 0, 0, 0, 0, 0, 1], b"zLR\0".as_slice(), &[1, 0x78, 16, 2, 3, 3, 0]].concat();
    let handled = [20, 0, 0, 0, 24, 0, 0, 0, 0, 0x20, 0, 0, 0x30, 0, 0, 0, 4, 0, 0x50, 0, 0, 0, 0, 0];
    let section = [&plain, function.as_slice(), &with_handlers, &handled, &[0; 4]].concat();
    let found = |bytes: &[u8]| LandingPads::of_eh_frame(bytes, VirtualAddress(0x9000));
    assert_eq!(found(&section), LandingPads::Of(std::iter::once(0x2000..0x2030).collect()));
    assert_eq!(found(&[&plain, function.as_slice(), &[0; 4]].concat()), LandingPads::Of(Vec::new()));
    // Sections that are cut short, or lack the common entry.
    assert_eq!(found(&section[..section.len() - 8]), LandingPads::Anywhere);
    assert_eq!(found(&function), LandingPads::Anywhere);
}

#[test]
fn bytes_end_with_their_segment() {
    let text = [1, 2, 3, 4];
    let map = CodeMap::new(
        [CodeSegment { address: VirtualAddress(u64::MAX - 3), bytes: &text }],
        [symbol(u64::MAX - 1, u64::MAX)],
        LandingPads::InSymbols,
    );
    assert_eq!(*map.bytes_at(u64::MAX - 2, 9), [2, 3], "nothing lies at the last address");
    assert_eq!(*map.bytes_at(u64::MAX - 3, 2), [1, 2]);
    assert!(map.bytes_at(0, 9).is_empty());
    assert_eq!(map.overlap(&(u64::MAX - 1..u64::MAX)), u64::MAX - 1..u64::MAX);
}
