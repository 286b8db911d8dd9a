//! Functions as machine code, one for each way in which a site can be wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod edges;
mod exits;
mod treatment;

use proptest::prelude::*;

use super::*;
use crate::{
    probe::site::{CodeMap, CodeSegment, CodeSymbol, Doubt, LandingPads, Site},
    units::Nanos,
};

const ENTRY: u64 = 0x40_1000;

/// The cost of each kind on Linux 6.18 in a virtual machine.
fn measured(kind: SiteKind) -> Nanos {
    Nanos(match kind {
        SiteKind::Nop5 => 345,
        SiteKind::Nop | SiteKind::LongNop | SiteKind::Jmp | SiteKind::Jcc => 500,
        SiteKind::Push => 520,
        SiteKind::Call => 620,
        SiteKind::SingleStep => 9_500,
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// A file whose text starts with the function. The function is as long as the text, unless `size` is smaller.
struct Text {
    bytes: Vec<u8>,
    address: u64,
    entry: u64,
    size: Option<u64>,
    symbols: Vec<CodeSymbol>,
    landing_pads: LandingPads,
    shadow_stack: bool,
}

impl Text {
    fn new(hex: &str) -> Self {
        let bytes = bytes(hex);
        let size = Some(bytes.len() as u64);
        Self {
            bytes,
            address: ENTRY,
            entry: ENTRY,
            size,
            symbols: Vec::new(),
            landing_pads: LandingPads::InSymbols,
            shadow_stack: false,
        }
    }

    fn size(mut self, size: impl Into<Option<u64>>) -> Self {
        self.size = size.into();
        self
    }

    fn symbol(mut self, offset: u64, size: u64, fragment: bool) -> Self {
        let address = VirtualAddress(self.address + offset);
        self.symbols.push(CodeSymbol { address, size, fragment });
        self
    }

    fn with<T>(&self, look: impl FnOnce(&FunctionCode<'_>) -> T) -> T {
        let entry = VirtualAddress(self.entry);
        let own = CodeSymbol { address: entry, size: self.size.unwrap_or(0), fragment: false };
        let segment = CodeSegment { address: VirtualAddress(self.address), bytes: &self.bytes };
        let symbols = self.symbols.iter().copied().chain([own]);
        let map = CodeMap::new([segment], symbols, self.landing_pads.clone());
        look(&FunctionCode { map: &map, entry, size: self.size, shadow_stack: self.shadow_stack })
    }

    fn analyse(&self) -> Analysis {
        self.with(analyse).unwrap()
    }

    fn choose(&self) -> Result<Site, SiteRefusal> {
        self.with(analyse)?.choose(&measured)
    }

    /// The offset and kind of the chosen site.
    fn site(&self) -> (u32, SiteKind) {
        let site = self.choose().unwrap();
        (site.offset_in_function, site.kind)
    }
}

fn excluded(text: &Text, offset: u32) -> Option<Exclusion> {
    text.analyse().candidates.iter().find(|candidate| candidate.offset == offset).unwrap().excluded
}

fn at(offset: u64) -> VirtualAddress {
    VirtualAddress(ENTRY + offset)
}

#[test]
fn the_first_emulated_instruction_of_the_line_is_taken() {
    use SiteKind::{Call, Jcc, Jmp, LongNop, Nop, Nop5, Push, SingleStep};
    for (hex, offset, kind, why) in [
        ("f3 0f 1e fa 55 48 89 e5 5d c3", 4, Push, "endbr64; push rbp"),
        ("55 48 89 e5 5d c3", 0, Push, "push rbp"),
        ("48 83 ec 08 41 54 41 5c 48 83 c4 08 c3", 4, Push, "sub; push r12"),
        ("48 83 ec 08 e8 00 00 00 00 48 83 c4 08 c3", 4, Call, "sub; call"),
        ("85 ff 74 01 90 c3", 2, Jcc, "test; je, and not the nop that it may skip"),
        ("85 ff 0f 84 01 00 00 00 90 c3", 2, Jcc, "test; near je"),
        ("31 c0 eb 01 90 c3", 2, Jmp, "xor; jmp"),
        ("89 f8 c3", 0, SingleStep, "mov; ret: a leaf that has none"),
        ("c3", 0, SingleStep, "ret alone"),
        ("f3 0f 1e fa 90 c3", 4, Nop, "endbr64; nop"),
        ("66 90 c3", 0, Nop, "two-byte nop"),
        ("0f 1f 40 00 c3", 0, LongNop, "four-byte nop"),
        ("f3 0f 1e fa 0f 1f 44 00 00 c3", 4, Nop5, "endbr64; five-byte nop"),
        ("66 66 66 66 90 c3", 0, Nop5, "five bytes of prefixed nop"),
        ("55 0f 1f 44 00 00 5d c3", 1, Nop5, "a later nop that is cheaper by more than a tenth"),
        ("55 90 5d c3", 0, Push, "a later nop that is cheaper by less"),
        ("66 50 c3", 0, SingleStep, "a 16-bit push is stepped"),
        ("48 50 c3", 0, SingleStep, "a push with REX.W is stepped"),
        ("6a 00 58 c3", 0, SingleStep, "a push of a constant is stepped"),
        ("ff d0 c3", 0, SingleStep, "an indirect call ends the line"),
        ("48 89 f8 67 e8 00 00 00 00 c3", 3, Call, "addr32 call, which linkers write"),
        ("e3 00 c3", 0, SingleStep, "jrcxz is stepped, and ends the line"),
        ("f3 90 c3", 0, SingleStep, "pause is no nop"),
        ("48 8d 05 00 01 00 00 55 5d c3", 7, Push, "an address elsewhere"),
    ] {
        assert_eq!(Text::new(hex).site(), (offset, kind), "{why}");
    }
}

#[test]
fn nothing_after_a_transfer_of_control_is_a_site() {
    for (hex, why) in [
        ("89 f8 c3 90 55", "ret"),
        ("ff d0 90 c3", "indirect call: it may not return"),
        ("0f 05 90 c3", "syscall: it may return twice"),
        ("cc 90 c3", "int3"),
        ("0f 0b 90 c3", "ud2"),
        ("f4 90 c3", "hlt"),
        ("e2 00 90 c3", "loop"),
        ("c7 f8 00 00 00 00 90 c3", "xbegin"),
        ("cd 80 90 c3", "int 0x80"),
    ] {
        let analysis = Text::new(hex).analyse();
        let last = analysis.candidates.last().unwrap();
        assert_ne!(last.kind, SiteKind::Nop, "{why}");
        assert_ne!(last.kind, SiteKind::Push, "{why}");
    }
}

#[test]
fn a_branch_to_the_line_moves_the_site_before_it() {
    // mov eax, edi; L: dec eax; nop; jne L; ret
    let looped = Text::new("89 f8 ff c8 90 75 fb c3");
    assert_eq!(looped.site(), (0, SiteKind::SingleStep));
    assert_eq!(excluded(&looped, 4), Some(Exclusion::Reached { from: at(5), to: at(2) }));
    // push rbx; L: nop; dec edi; jne L; pop rbx; ret
    assert_eq!(Text::new("53 0f 1f 44 00 00 ff cf 75 f7 5b c3").site(), (0, SiteKind::Push));
    // mov eax, edi; nop; L: dec eax; jne L; ret: the branch lands after the nop
    assert_eq!(Text::new("89 f8 90 ff c8 75 fc c3").site(), (2, SiteKind::Nop));
    // mov eax, edi; L: nop; ...; call L: a call of an address in the middle also enters there
    assert_eq!(Text::new("89 f8 90 c3 e8 f9 ff ff ff c3").site(), (0, SiteKind::SingleStep));
    // nop; lea rax, [rip - 7] (the end of the nop); jmp rax
    let taken = Text::new("89 ff 90 90 48 8d 05 f8 ff ff ff ff e0");
    assert_eq!(taken.site(), (0, SiteKind::SingleStep));
    assert_eq!(excluded(&taken, 3), Some(Exclusion::Reached { from: at(4), to: at(3) }));
}

#[test]
fn jumps_to_the_entry_repeat_every_site() {
    // L: nop; dec edi; jne L; ret
    let site = Text::new("90 ff cf 75 fb c3").choose().unwrap();
    assert!(site.exactness == Exactness::Repeats && site.reason.contains("0x401003"), "{}", site.reason);
    // jmp to itself
    let site = Text::new("eb fe").choose().unwrap();
    assert_eq!((site.offset_in_function, site.kind, site.exactness), (0, SiteKind::Jmp, Exactness::Repeats));
    // A function that calls itself: this is no loop.
    assert_eq!(Text::new("53 e8 fa ff ff ff 5b c3").choose().unwrap().exactness, Exactness::Once);
}

#[test]
fn indirect_jumps_leave_the_last_save_as_the_last_site() {
    // push rbp; mov rbp, rsp; nop5; jmp rax: the nop would be cheaper, but comes after the last save
    let after = Text::new("55 48 89 e5 0f 1f 44 00 00 ff e0");
    assert_eq!(after.site(), (0, SiteKind::Push));
    assert_eq!(excluded(&after, 4), Some(Exclusion::Unproven(Doubt::IndirectJump(at(9)))));
    let reason = after.choose().unwrap().reason;
    assert!(reason.contains("would be cheaper") && reason.contains("0x401009"), "{reason}");
    // push rbp; mov rbp, rsp; nop5; push rbx; jmp rax
    assert_eq!(Text::new("55 48 89 e5 0f 1f 44 00 00 53 ff e0").site(), (4, SiteKind::Nop5));
    // endbr64; push rbp; push r15; jmp [rdi]
    assert_eq!(Text::new("f3 0f 1e fa 55 41 57 ff 27").site(), (4, SiteKind::Push));
    // These pushes save no register of the caller: rbx was written before (it pushes an argument), and rax is
    // not callee-saved.
    assert_eq!(Text::new("48 89 fb 53 ff e0").site(), (0, SiteKind::SingleStep));
    assert_eq!(Text::new("31 c9 50 ff e0").site(), (0, SiteKind::SingleStep));
    // An indirect jump could lead to the entry, unless the code saves a register before the jump.
    assert_eq!(Text::new("31 c9 50 ff e0").choose().unwrap().exactness, Exactness::Unproven);
    assert_eq!(after.choose().unwrap().exactness, Exactness::Once);
    // If a known branch lands at or before a save, the save proves nothing: xor; L: push rbx; pop rbx; jne L;
    // jmp rax
    assert_eq!(Text::new("31 c9 53 5b 75 fc ff e0").site(), (0, SiteKind::SingleStep));
}

#[test]
fn jumps_through_the_global_offset_table_are_tail_calls() {
    // mov; nop; jmp [rip + 0x100]
    let bytes = bytes("89 f8 90 ff 25 00 01 00 00");
    let slot = ENTRY + 9 + 0x100;
    for (got, offset) in [(slot..slot + 8, 2), (slot + 8..slot + 16, 0)] {
        let segment = CodeSegment { address: VirtualAddress(ENTRY), bytes: &bytes };
        let map = CodeMap::new([segment], [], LandingPads::InSymbols).with_got([got]);
        let entry = VirtualAddress(ENTRY);
        let function = FunctionCode { map: &map, entry, size: Some(9), shadow_stack: false };
        assert_eq!(analyse(&function).unwrap().choose(&measured).unwrap().offset_in_function, offset);
    }
}

#[test]
fn data_and_tricks_in_the_function_leave_the_entry() {
    // mov; nop; ret; and then bytes that are not an instruction
    let data = Text::new("89 f8 90 c3 06 06");
    assert_eq!(data.site(), (0, SiteKind::SingleStep));
    assert_eq!(excluded(&data, 2), Some(Exclusion::Unproven(Doubt::Undecodable(at(4)))));
    // mov; nop; jmp into the middle of the next instruction
    let middle = Text::new("89 f8 90 85 c0 74 02 b8 90 90 90 90 c3");
    assert_eq!(excluded(&middle, 2), Some(Exclusion::Unproven(Doubt::InsideInstruction(at(9)))));
    // The function's size is absurd.
    let huge = Text::new("89 f8 90 c3").size(1 << 40);
    assert_eq!(excluded(&huge, 2), Some(Exclusion::Unproven(Doubt::TooMuchCode)));
}

#[test]
fn the_size_bounds_the_line() {
    for size in [None, Some(0)] {
        let text = Text::new("f3 0f 1e fa 55 c3").size(size);
        assert_eq!(text.site(), (0, SiteKind::SingleStep));
        assert_eq!(text.analyse().end, LineEnd::SizeUnknown);
    }
    let text = Text::new("f3 0f 1e fa 55 c3").size(4);
    assert_eq!((text.site(), text.analyse().end), ((0, SiteKind::SingleStep), LineEnd::FunctionEnd));
    // The file ends in the middle of an instruction.
    assert_eq!(Text::new("48 83 ec 08 e8 00").size(9).site(), (0, SiteKind::SingleStep));
}

#[test]
fn other_symbols_are_other_ways_in() {
    // endbr64; push rbp; ret, with an alias at the push
    let alias = Text::new("f3 0f 1e fa 55 5d c3").symbol(4, 3, false);
    assert_eq!(alias.site(), (0, SiteKind::SingleStep));
    assert_eq!(alias.analyse().end, LineEnd::Symbol(at(4)));
    // An alias of the entry is no other entry.
    assert_eq!(Text::new("f3 0f 1e fa 55 5d c3").symbol(0, 7, false).site(), (4, SiteKind::Push));
    // If a symbol lies within a five-byte nop, the kernel must not rewrite the nop.
    let inside = Text::new("0f 1f 44 00 00 55 5d c3").symbol(3, 0, false);
    assert_eq!(excluded(&inside, 0), Some(Exclusion::Reached { from: at(3), to: at(3) }));
    // The function lies inside another symbol, and earlier code of that symbol jumps into it: nop; je +3 |
    // mov; nop; ret
    let mut inner = Text::new("90 74 02 89 f8 90 c3").symbol(0, 7, false);
    (inner.entry, inner.size) = (ENTRY + 3, Some(4));
    assert_eq!(inner.site(), (0, SiteKind::SingleStep));
}

#[test]
fn branches_from_moved_pieces_are_found() {
    // f: mov eax, edi; L: nop; test; je f.cold; ret | f.cold: jmp L
    let followed = "89 f8 90 85 c0 74 01 c3 eb f8";
    assert_eq!(Text::new(followed).size(8).site(), (0, SiteKind::SingleStep));
    assert_eq!(Text::new(followed).size(8).symbol(8, 2, true).site(), (0, SiteKind::SingleStep));
    // The same piece, which only the unwinder enters: we find it only if it has a symbol.
    let unwound = "89 f8 90 85 c0 90 90 c3 eb f8";
    assert_eq!(Text::new(unwound).size(8).symbol(8, 2, true).site(), (0, SiteKind::SingleStep));
    assert_eq!(Text::new(unwound).size(8).site(), (2, SiteKind::Nop));
    // A jump to another function's entry is a tail call. The code of that function does not matter.
    let tail = Text::new("89 f8 90 85 c0 74 01 c3 ff e0").size(8);
    assert_eq!(excluded(&tail, 2), Some(Exclusion::Unproven(Doubt::IndirectJump(at(8)))));
    assert_eq!(tail.symbol(8, 2, false).site(), (2, SiteKind::Nop));
    // A jump through the procedure linkage table is a tail call too: je to endbr64; bnd jmp [rip + 0]
    let plt = Text::new("89 f8 90 85 c0 74 01 c3 f3 0f 1e fa f2 ff 25 00 00 00 00").size(8);
    assert_eq!(plt.site(), (2, SiteKind::Nop));
    // The jump leads out of the file's code.
    assert_eq!(Text::new("89 f8 90 e9 00 00 00 10").site(), (0, SiteKind::SingleStep));
}

#[test]
fn handlers_that_no_symbol_shows_leave_the_last_save() {
    let calling = "48 83 ec 08 e8 00 00 00 00 48 83 c4 08 c3";
    let mut text = Text::new(calling);
    text.landing_pads = LandingPads::Anywhere;
    assert_eq!(text.site(), (0, SiteKind::SingleStep));
    assert_eq!(excluded(&text, 4), Some(Exclusion::Unproven(Doubt::LandingPads)));
    let mut saving = Text::new(&format!("f3 0f 1e fa 53 {calling}"));
    saving.landing_pads = LandingPads::Anywhere;
    assert_eq!(saving.site(), (4, SiteKind::Push));
    let mut leaf = Text::new("f3 0f 1e fa 90 c3");
    leaf.landing_pads = LandingPads::Anywhere;
    assert_eq!(leaf.site(), (4, SiteKind::Nop));
}

#[test]
fn code_that_is_not_there_is_refused() {
    let mut text = Text::new("90 c3");
    text.entry = ENTRY + 2;
    assert_eq!(text.choose(), Err(SiteRefusal::OutsideCode(at(2))));
    text.entry = 0;
    assert_eq!(text.choose(), Err(SiteRefusal::OutsideCode(VirtualAddress(0))));
}

#[test]
fn the_entry_stays_where_nothing_is_cheaper_on_this_machine() {
    let text = Text::new("f3 0f 1e fa 0f 1f 44 00 00 c3");
    // This kernel single-steps five-byte nops too.
    let site = text.analyse().choose(&|_| Nanos(9_500)).unwrap();
    assert_eq!(site.offset_in_function, 0);
    assert!(site.reason.contains("ret"), "{}", site.reason);
}

proptest! {
    #[test]
    fn no_bytes_panic_and_the_site_is_on_the_line(
        code in proptest::collection::vec(favoured_byte(), 1..200),
        entry in 0_u64..220,
        size in prop_oneof![Just(None), (0_u64..220).prop_map(Some), Just(Some(u64::MAX))],
        symbols in proptest::collection::vec((0_u64..220, 0_u64..220, any::<bool>()), 0..6),
        base in prop_oneof![Just(ENTRY), Just(0), Just(u64::MAX - 100)],
        shadow_stack: bool,
        landing_pads in prop_oneof![
            Just(LandingPads::InSymbols),
            Just(LandingPads::Anywhere),
            Just(LandingPads::Of(vec![0..8, ENTRY..ENTRY + 50])),
        ],
    ) {
        let symbols = symbols.into_iter().map(|(offset, size, fragment)| CodeSymbol {
            address: VirtualAddress(base.wrapping_add(offset)), size, fragment,
        }).collect();
        let entry = base.wrapping_add(entry);
        let text = Text { bytes: code, address: base, entry, size, symbols, landing_pads, shadow_stack };
        match text.choose() {
            Err(SiteRefusal::OutsideCode(address)) => prop_assert_eq!(address.0, entry),
            Err(SiteRefusal::NoSite { .. }) => {}
            Ok(site) => {
                // Decodes again from the entry: there is no transfer of control before the site, and the site
                // is within the function's size.
                let skip = usize::try_from(entry.wrapping_sub(base)).unwrap();
                let mut decoder = Decoder::with_ip(64, &text.bytes[skip..], entry, DecoderOptions::NONE);
                while decoder.ip() != site.address.0 {
                    let instruction = decoder.decode();
                    prop_assert!(!instruction.is_invalid());
                    prop_assert_eq!(instruction.flow_control(), FlowControl::Next);
                }
                prop_assert_eq!(u64::from(site.offset_in_function), site.address.0 - entry);
                if site.offset_in_function > 0 {
                    prop_assert!(u64::from(site.offset_in_function) < size.unwrap_or(0));
                    for symbol in &text.symbols {
                        prop_assert!(!(symbol.address.0 > entry && symbol.address.0 <= site.address.0));
                    }
                }
            }
        }
    }
}

/// Random bytes. Prologues, branches and prefixes are more frequent here than by chance.
fn favoured_byte() -> impl Strategy<Value = u8> {
    let favoured =
        bytes("55 53 41 54 48 89 e5 83 ec 08 90 0f 1f 44 00 00 eb fe 74 fc 75 e8 e9 c3 f3 66 2e f0 c5");
    prop_oneof![any::<u8>(), proptest::sample::select(favoured)]
}
