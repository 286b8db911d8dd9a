//! Tests the exits of functions, and functions that we cannot time.

use speed_bump_abi::Condition;

use super::*;
use crate::probe::site::{EXITS_LIMIT, Exit, NoExits, exits};

/// The offset, kind and condition of each exit of a function. The function's site is the one that `choose`
/// returns.
fn ways(text: &Text) -> Result<Vec<(u64, SiteKind, Condition)>, NoExits> {
    let site = text.choose().unwrap();
    let ways = text.with(|function| exits(function, &site))?;
    Ok(ways.iter().map(|Exit { address, kind, condition }| (address.0 - ENTRY, *kind, *condition)).collect())
}

fn always(offset: u64, kind: SiteKind) -> (u64, SiteKind, Condition) {
    (offset, kind, Condition::Always)
}

#[test]
fn every_return_is_a_way_out() {
    use SiteKind::SingleStep;
    for (hex, offsets, why) in [
        ("55 48 89 e5 5d c3", &[5][..], "push; mov; pop; ret"),
        ("85 ff 74 03 89 f8 c3 31 c0 c3", &[6, 9], "test; je; mov; ret; xor; ret"),
        ("53 5b f3 c3", &[2], "rep ret"),
        ("53 5b c2 08 00", &[2], "ret 8"),
        ("53 5b c3 90 90 0f 1f 40 00", &[2], "what fills the end is not run"),
        ("53 e8 00 01 00 00 5b c3", &[7], "a call comes back"),
        ("53 85 ff 75 02 5b c3 e8 f5 00 00 00", &[6], "and one at the end does not"),
        ("53 85 ff 75 02 5b c3 0f 0b", &[6], "ud2 ends it"),
        ("53 5b cc c3 cc", &[], "a breakpoint does"),
    ] {
        let expected: Vec<_> = offsets.iter().map(|offset| always(*offset, SingleStep)).collect();
        let expected = if expected.is_empty() { Err(NoExits::NeverReturns) } else { Ok(expected) };
        assert_eq!(ways(&Text::new(hex)), expected, "{why}");
    }
}

#[test]
fn jumps_to_other_functions_are_ways_out() {
    // push rbx; pop rbx; jmp g | nop | g: ret
    let tail = Text::new("53 5b e9 01 00 00 00 90 c3").size(7).symbol(8, 1, false);
    assert_eq!(ways(&tail), Ok(vec![always(2, SiteKind::Jmp)]));
    // push rbx; pop rbx; test edi, edi; jle g; ret | g: ret
    let conditional = Text::new("53 5b 85 ff 7e 01 c3 c3").size(7).symbol(7, 1, false);
    let jle = (4, SiteKind::Jcc, Condition::Flags(14));
    assert_eq!(ways(&conditional), Ok(vec![jle, always(6, SiteKind::SingleStep)]));
    // The jump leads to an entry of the procedure linkage table, which no symbol names: endbr64; jmp [rip +
    // 0].
    let linkage = Text::new("53 5b e9 01 00 00 00 90 f3 0f 1e fa ff 25 00 00 00 00").size(7);
    assert_eq!(ways(&linkage), Ok(vec![always(2, SiteKind::Jmp)]));
    // jrcxz to another function: the flags do not show whether it jumps.
    let looped = Text::new("53 5b e3 01 c3 c3").size(5).symbol(5, 1, false);
    assert_eq!(ways(&looped), Err(NoExits::LeftByLoop(at(2))));
}

#[test]
fn jumps_to_where_no_function_begins_leave_a_function_untimed() {
    // push rbx; pop rbx; jmp to a place that no symbol names
    let unnamed = Text::new("53 5b eb 01 90 c3").size(4);
    assert_eq!(ways(&unnamed), Err(NoExits::IntoOtherCode(at(2))));
    // The jump leads into the middle of another function.
    let middle = Text::new("53 5b eb 01 90 c3").size(4).symbol(4, 2, false);
    assert_eq!(ways(&middle), Err(NoExits::IntoOtherCode(at(2))));
    // push rbx; pop rbx, and then straight into another function
    let on = Text::new("53 5b c3").size(2).symbol(2, 1, false);
    assert_eq!(ways(&on), Err(NoExits::RunsOn(at(2))));
}

#[test]
fn moved_pieces_belong_to_the_function() {
    // f: push rbx; test edi, edi; je f.cold; pop rbx; ret | f.cold: pop rbx; xor eax, eax; ret
    let hex = "53 85 ff 74 02 5b c3 5b 31 c0 c3";
    let moved = Text::new(hex).size(7).symbol(7, 4, true);
    let expected = Ok(vec![always(6, SiteKind::SingleStep), always(10, SiteKind::SingleStep)]);
    assert_eq!(ways(&moved), expected);
    // A handler in a moved piece, which only the unwinder enters: nothing shows that it belongs to this
    // function.
    let handler = Text::new("53 85 ff 90 90 5b c3 5b 31 c0 c3").size(7).symbol(7, 4, true);
    assert_eq!(ways(&handler), Ok(vec![always(6, SiteKind::SingleStep)]));
}

#[test]
fn an_indirect_jump_is_a_switch_where_the_stack_shows_it() {
    // push rbx; jmp rax; pop rbx; ret; pop rbx; xor eax, eax; ret
    let switch = Text::new("53 ff e0 5b c3 5b 31 c0 c3");
    let expected = Ok(vec![always(4, SiteKind::SingleStep), always(8, SiteKind::SingleStep)]);
    assert_eq!(ways(&switch), expected);
    // push rbx; jmp rax; L: notrack jmp rax in one of its cases; pop rbx; ret
    let nested = Text::new("53 ff e0 3e ff e0 5b c3");
    assert_eq!(ways(&nested), Ok(vec![always(7, SiteKind::SingleStep)]));
    // push rbx; pop rbx; jmp rax: a tail call, or a switch
    assert_eq!(ways(&Text::new("53 5b ff e0 c3")), Err(NoExits::IndirectJump(at(2))));
    // The stack pointer moved by an unknown amount: push rbx; sub rsp, rax; jmp rax
    assert_eq!(ways(&Text::new("53 48 29 c4 ff e0 c3")), Err(NoExits::IndirectJump(at(4))));
    // The jump is reached with two different stack depths: push rbx; je L; pop rbx; L: jmp rax
    assert_eq!(ways(&Text::new("53 74 01 5b ff e0 c3")), Err(NoExits::IndirectJump(at(4))));
}

#[test]
fn jumps_through_the_global_offset_table_are_ways_out() {
    // push rbx; pop rbx; jmp [rip + 0x100]
    let bytes = bytes("53 5b ff 25 00 01 00 00");
    let slot = ENTRY + 8 + 0x100;
    let segment = CodeSegment { address: VirtualAddress(ENTRY), bytes: &bytes };
    let map = CodeMap::new([segment], [], LandingPads::InSymbols).with_got(std::iter::once(slot..slot + 8));
    let entry = VirtualAddress(ENTRY);
    let function = FunctionCode { map: &map, entry, size: Some(8), shadow_stack: false };
    let site = analyse(&function).unwrap().choose(&measured).unwrap();
    let found = exits(&function, &site).unwrap();
    let way = Exit { address: at(2), kind: SiteKind::SingleStep, condition: Condition::Always };
    assert_eq!(found, [way]);
}

#[test]
fn data_and_tricks_leave_a_function_untimed() {
    // push rbx; jmp rax; and then bytes that are not an instruction
    assert_eq!(ways(&Text::new("53 ff e0 5b c3 06 06")), Err(NoExits::Undecodable(at(5))));
    // push rbx; je into the middle of the next instruction; mov eax, imm; pop rbx; ret
    let middle = Text::new("53 74 02 b8 90 90 90 90 5b c3");
    assert_eq!(ways(&middle), Err(NoExits::InsideInstruction(at(5))));
    // Nothing jumps to the bytes in between: they may be data, so they get no probe.
    assert_eq!(ways(&Text::new("53 eb 02 c3 90 5b c3")), Ok(vec![always(6, SiteKind::SingleStep)]));
}

#[test]
fn what_cannot_be_timed_says_why() {
    for (text, why) in [
        (Text::new("90 ff cf 75 fb c3"), NoExits::JumpsToEntry),
        (Text::new("c3"), NoExits::IsSite),
        (Text::new("53 eb fe"), NoExits::NeverReturns),
        (Text::new("53 5b c3").size(None), NoExits::SizeUnknown),
        (Text::new("53 5b c3").size(1 << 21), NoExits::TooMuchCode),
        // A jump to the next instruction is five bytes that do nothing, so the kernel may rewrite it.
        (Text::new("53 5b e9 00 00 00 00 c3").size(7).symbol(7, 1, false), NoExits::Rewritten(at(2))),
        (Text::new("53 5b cf"), NoExits::Undecodable(at(2))),
        (Text::new("53 5b 2e c3"), NoExits::Refused(at(2), KernelRefusal::SegmentPrefix)),
        (Text::new(&format!("53 ff e0 {}", "c3 ".repeat(EXITS_LIMIT + 1))), NoExits::TooMany),
    ] {
        assert_eq!(ways(&text), Err(why), "{why}");
    }
    let most = Text::new(&format!("53 ff e0 {}", "c3 ".repeat(EXITS_LIMIT)));
    assert_eq!(ways(&most).unwrap().len(), EXITS_LIMIT);
}

proptest! {
    #[test]
    fn no_bytes_panic_and_each_way_out_is_one(
        code in proptest::collection::vec(prop_oneof![favoured_byte(), Just(0xc3)], 1..200),
        size in prop_oneof![Just(None), (0_u64..220).prop_map(Some), Just(Some(u64::MAX))],
        symbols in proptest::collection::vec((0_u64..220, 0_u64..220, any::<bool>()), 0..6),
        base in prop_oneof![Just(ENTRY), Just(0), Just(u64::MAX - 100)],
    ) {
        let symbols = symbols.into_iter().map(|(offset, size, fragment)| CodeSymbol {
            address: VirtualAddress(base.wrapping_add(offset)), size, fragment,
        }).collect();
        let text = Text {
            bytes: code, address: base, entry: base, size, symbols,
            landing_pads: LandingPads::InSymbols, shadow_stack: false,
        };
        let Ok(site) = text.choose() else { return Ok(()) };
        for way in text.with(|function| exits(function, &site)).unwrap_or_default() {
            prop_assert_ne!(way.address, site.address);
            let skip = usize::try_from(way.address.0 - base).unwrap();
            let code = &text.bytes[skip..];
            let instruction = Decoder::with_ip(64, code, way.address.0, DecoderOptions::NONE).decode();
            let flow = instruction.flow_control();
            let is_conditional = flow == FlowControl::ConditionalBranch;
            prop_assert_eq!(is_conditional, way.condition != Condition::Always);
            prop_assert!(
                is_conditional
                    || matches!(flow, FlowControl::Return | FlowControl::UnconditionalBranch),
                "{:?}", instruction
            );
        }
    }
}
