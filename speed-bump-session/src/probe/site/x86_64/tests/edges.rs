//! Tests the limits of the search, exactly to the byte and to the instruction.

use super::*;
use crate::probe::site::x86_64::{
    LINE_LIMIT,
    branches::{FRAGMENTS_LIMIT, LONGEST_FUNCTION, OUTSIDE_LIMIT},
};

#[test]
fn a_symbol_right_behind_an_instruction_leaves_it_on_the_line() {
    // endbr64; push rbp; L: pop rbp; ret
    let text = Text::new("f3 0f 1e fa 55 5d c3").symbol(5, 0, false);
    assert_eq!((text.site(), text.analyse().end), ((4, SiteKind::Push), LineEnd::Symbol(at(5))));
}

#[test]
fn a_branch_right_behind_a_nop_leaves_it_whole() {
    // nop5; L: dec edi; jne L; ret
    assert_eq!(excluded(&Text::new("0f 1f 44 00 00 ff cf 75 fc c3"), 0), None);
    // nop5; dec edi; jne into its last byte; ret
    let inside = Text::new("0f 1f 44 00 00 ff cf 75 fb c3");
    assert_eq!(excluded(&inside, 0), Some(Exclusion::Reached { from: at(7), to: at(4) }));
}

#[test]
fn a_save_is_trusted_up_to_the_first_branch() {
    for (hex, trusted, why) in [
        ("31 c9 90 53 ff cf 75 fc ff e0", true, "xor; nop; push rbx; L: dec edi; jne L; jmp rax"),
        ("31 c9 90 53 5b 75 fc ff e0", false, "xor; nop; L: push rbx; pop rbx; jne L; jmp rax"),
        ("31 c9 90 85 c0 53 5b 75 fa ff e0", false, "xor; nop; L: test; push rbx; pop rbx; jne L; jmp rax"),
    ] {
        let text = Text::new(hex);
        let site = if trusted { (2, SiteKind::Nop) } else { (0, SiteKind::SingleStep) };
        assert_eq!(text.site(), site, "{why}");
        let exactness = if trusted { Exactness::Once } else { Exactness::Unproven };
        assert_eq!(text.choose().unwrap().exactness, exactness, "{why}");
    }
}

#[test]
fn nothing_is_known_of_a_function_without_a_size() {
    let exactness = |text: Text| text.choose().unwrap().exactness;
    assert_eq!(exactness(Text::new("89 f8 c3")), Exactness::Once);
    assert_eq!(exactness(Text::new("89 f8 c3").size(None)), Exactness::Unproven);
}

#[test]
fn the_longest_function_is_searched_and_no_longer_one() {
    let longest = Text::new("89 f8 90 c3").size(LONGEST_FUNCTION);
    assert_eq!(longest.site(), (2, SiteKind::Nop));
    let longer = Text::new("89 f8 90 c3").size(LONGEST_FUNCTION + 1);
    assert_eq!(excluded(&longer, 2), Some(Exclusion::Unproven(Doubt::TooMuchCode)));
}

#[test]
fn so_much_code_is_followed_outside() {
    // mov; nop; jmp to the next instruction, which lies outside the function: nops, and ret.
    for (outside, doubt) in [(OUTSIDE_LIMIT, None), (OUTSIDE_LIMIT + 1, Some(Doubt::TooMuchCode))] {
        let mut text = Text::new("89 f8 90 e9 00 00 00 00").size(8);
        text.bytes.extend(std::iter::repeat_n(0x90, outside - 1).chain([0xc3]));
        assert_eq!(excluded(&text, 2), doubt.map(Exclusion::Unproven), "{outside}");
    }
}

#[test]
fn code_outside_is_followed_as_far_as_it_runs() {
    let indirect = |offset| Some(Exclusion::Unproven(Doubt::IndirectJump(at(offset))));
    // mov; nop; test; je outside; ret; and then the code outside
    for (outside, doubt, why) in [
        ("90 ff e0", indirect(9), "nop; jmp rax"),
        ("c3 ff e0", None, "ret, and what follows it"),
        ("74 01 c3 ff e0", indirect(11), "je to jmp rax"),
        ("e8 00 00 00 00 ff e0", indirect(13), "call; jmp rax"),
        ("ff d0 ff e0", indirect(10), "call rax; jmp rax"),
        ("89 f8 ff 25 00 00 00 00", indirect(10), "mov; jmp [rip]: no entry of a linkage table"),
        ("eb fe ff e0", None, "jmp to itself"),
        ("90 eb fd ff e0", None, "nop; jmp to it"),
    ] {
        let text = Text::new(&format!("89 f8 90 85 c0 74 01 c3 {outside}")).size(8);
        assert_eq!(excluded(&text, 2), doubt, "{why}");
    }
    // The code outside is a nop, and then comes another function's entry: the jmp rax belongs to that
    // function.
    let text = Text::new("89 f8 90 85 c0 74 01 c3 90 ff e0").size(8).symbol(9, 2, false);
    assert_eq!(excluded(&text, 2), None);
    // mov; nop; call outside; ret | jmp rax: the called code returns.
    assert_eq!(Text::new("89 f8 90 e8 01 00 00 00 c3 ff e0").size(9).site(), (2, SiteKind::Nop));
}

#[test]
fn a_moved_piece_may_jump_to_the_entry() {
    // mov; nop; ret | f.cold: jmp to the entry
    let text = Text::new("89 f8 90 c3 eb fa").size(4).symbol(4, 2, true);
    assert_eq!(text.choose().unwrap().exactness, Exactness::Repeats);
    assert_eq!(text.analyse().jump_to_entry, Some(at(4)));
}

#[test]
fn a_site_must_be_cheaper_by_more_than_a_tenth() {
    // endbr64; push rbp; ret: the push can be a site. mov [rsp - 8], rdi; nop5; ret: the nop cannot.
    let (push, nop) = (Text::new("f3 0f 1e fa 55 c3"), Text::new("48 89 7c 24 f8 0f 1f 44 00 00 c3"));
    for (other, cheaper) in
        [(1, true), (100, true), (899, true), (900, false), (1_000, false), (1_001, false)]
    {
        let cost = |kind| Nanos(if kind == SiteKind::SingleStep { 1_000 } else { other });
        let taken = push.analyse().choose(&cost).unwrap();
        assert_eq!(taken.offset_in_function, if cheaper { 4 } else { 0 }, "{other}");
        let passed_over = nop.analyse().choose(&cost).unwrap();
        assert_eq!(passed_over.offset_in_function, 0, "{other}");
        assert_eq!(passed_over.reason.contains("would be cheaper"), cheaper, "{other}");
        assert_eq!(passed_over.reason.contains("nothing is cheaper"), !cheaper, "{other}");
    }
}

#[test]
fn the_lowest_target_on_the_line_counts() {
    let reached = |from, to| Some(Exclusion::Reached { from: at(from), to: at(to) });
    for (hex, found, why) in [
        ("89 f8 90 90 90 75 fc 75 f9 c3", reached(7, 2), "mov; M: nop; L: nop; nop; jne L; jne M"),
        ("89 f8 90 90 90 75 fb 75 fa c3", reached(5, 2), "mov; L: nop; M: nop; nop; jne L; jne M"),
        ("89 f8 90 90 90 75 fc 75 fa c3", reached(5, 3), "mov; nop; L: nop; nop; jne L; jne L"),
    ] {
        assert_eq!(excluded(&Text::new(hex), 4), found, "{why}");
    }
    // ret; nop; nop | mov; nop; jne to the ret before; ret: the ret is not on the line.
    let mut text = Text::new("c3 90 90 89 f8 90 75 f8 c3");
    (text.entry, text.size) = (ENTRY + 3, Some(6));
    assert_eq!(text.site(), (2, SiteKind::Nop));
}

#[test]
fn an_address_of_the_line_that_is_loaded_may_be_jumped_to() {
    let reached = Some(Exclusion::Reached { from: at(3), to: at(2) });
    for (load, found, why) in [
        ("b8 02 10 40 00", reached, "mov eax, M"),
        ("48 c7 c0 02 10 40 00", reached, "mov rax, M, sign-extended"),
        ("48 b8 02 10 40 00 00 00 00 00", reached, "mov rax, M"),
        ("48 8d 05 f8 ff ff ff", reached, "lea rax, [rip - 8]"),
        ("48 8d 87 02 10 40 00", None, "lea rax, [rdi + M]: who knows where that is"),
        ("b8 00 10 40 00", None, "mov eax, the entry: a pointer to the function"),
        ("81 ff 02 10 40 00", None, "cmp edi, M"),
    ] {
        // mov; M: nop; an instruction that may load M; ret
        assert_eq!(excluded(&Text::new(&format!("89 f8 90 {load} c3")), 2), found, "{why}");
    }
}

#[test]
fn the_line_is_as_long_however_long_its_instructions_are() {
    // nops of 15 bytes
    let longest = format!("{} 90 ", "66 ".repeat(14));
    let analysis = Text::new(&longest.repeat(LINE_LIMIT + 1)).analyse();
    assert_eq!((analysis.candidates.len(), analysis.end), (LINE_LIMIT, LineEnd::Limit));
}

#[test]
fn moved_pieces_are_searched_up_to_a_size_together() {
    // mov; nop; ret | f.cold: ret
    for (size, doubt) in [(FRAGMENTS_LIMIT, None), (FRAGMENTS_LIMIT + 1, Some(Doubt::TooMuchCode))] {
        let text = Text::new("89 f8 90 c3 c3").size(4).symbol(4, size, true);
        assert_eq!(excluded(&text, 2), doubt.map(Exclusion::Unproven), "{size}");
    }
}
