//! Tests what the kernel does with single instructions: refuses, rewrites or repeats them.

use super::*;

#[test]
fn rewriting_spares_the_red_zone() {
    // mov [rsp - 8], rdi; nop5; ret
    let stored = Text::new("48 89 7c 24 f8 0f 1f 44 00 00 c3");
    assert_eq!(stored.site(), (0, SiteKind::SingleStep));
    assert_eq!(excluded(&stored, 5), Some(Exclusion::RedZone));
    // push rbp; mov rbp, rsp; mov [rbp - 4], edi; nop5
    assert_eq!(
        excluded(&Text::new("55 48 89 e5 89 7d fc 0f 1f 44 00 00 5d c3"), 7),
        Some(Exclusion::RedZone)
    );
    // sub rsp, 16; mov [rsp + 8], rdi; nop5: the data is above rsp
    assert_eq!(excluded(&Text::new("48 83 ec 10 48 89 7c 24 08 0f 1f 44 00 00 c3"), 9), None);
    // The data is below rsp once rsp has moved up again.
    let raised = Text::new("48 83 ec 10 48 89 7c 24 08 48 83 c4 10 0f 1f 44 00 00 c3");
    assert_eq!(excluded(&raised, 13), Some(Exclusion::RedZone));
    // If rsp moves by 0, the data stays above it.
    let unmoved = Text::new("48 83 ec 10 48 89 7c 24 08 48 83 ec 00 0f 1f 44 00 00 c3");
    assert_eq!(excluded(&unmoved, 13), None);
    // mov [rip + 0], edi; nop5: the data is not on the stack
    assert_eq!(excluded(&Text::new("89 3d 00 01 00 00 0f 1f 44 00 00 c3"), 6), None);
    // mov [rdi], esi: the data may be anywhere
    assert_eq!(excluded(&Text::new("89 37 0f 1f 44 00 00 c3"), 2), Some(Exclusion::RedZone));
    // Padded `mov rax, rax` and `lea rax, [rax + 0]`, five bytes each: 6.18 takes them for a nop.
    for five in ["66 66 48 89 c0", "48 8d 44 20 00"] {
        let text = Text::new(&format!("48 89 7c 24 f8 {five} c3"));
        assert_eq!(excluded(&text, 5), Some(Exclusion::RedZone), "{five}");
    }
    // The kernel never rewrites a one-byte nop.
    assert_eq!(Text::new("48 89 7c 24 f8 90 c3").site(), (5, SiteKind::Nop));
    // The kernel also rewrites jmp +0 of five bytes.
    assert_eq!(excluded(&Text::new("48 89 7c 24 f8 e9 00 00 00 00 c3"), 5), Some(Exclusion::RedZone));
}

#[test]
fn a_five_byte_nop_across_pages_is_a_long_one() {
    for (offset, kind) in [(0xffb, SiteKind::Nop5), (0xffc, SiteKind::LongNop)] {
        let mut text = Text::new("0f 1f 44 00 00 c3");
        (text.address, text.entry) = (ENTRY + offset, ENTRY + offset);
        assert_eq!(text.site(), (0, kind));
    }
}

#[test]
fn what_the_kernel_refuses_is_passed_over() {
    for (hex, refusal) in [
        ("f0 ff 0f c3", KernelRefusal::Lock),
        ("f0 48 ff 0f c3", KernelRefusal::Lock),
        ("3e ff e0", KernelRefusal::SegmentPrefix),
        ("2e 74 00 c3", KernelRefusal::SegmentPrefix),
        ("66 2e 0f 1f 84 00 00 00 00 00 c3", KernelRefusal::SegmentPrefix),
        ("cc c3", KernelRefusal::Breakpoint),
        ("f1 c3", KernelRefusal::Breakpoint),
        ("f4", KernelRefusal::Privileged),
        ("fa c3", KernelRefusal::Privileged),
        ("ec c3", KernelRefusal::NotInTable),
        ("0f 05 c3", KernelRefusal::SystemCall),
        ("cd 80 c3", KernelRefusal::SystemCall),
        ("9c 58 c3", KernelRefusal::TrapFlag),
        ("8e d0 c3", KernelRefusal::StackSegment),
        ("c7 f8 00 00 00 00 c3", KernelRefusal::Transaction),
        ("41 90 c3", KernelRefusal::TakenForNop),
        ("49 90 c3", KernelRefusal::TakenForNop),
        ("66 e9 00 00 00 00 c3", KernelRefusal::OperandSizeBranch),
        ("66 66 48 e8 00 00 00 00 c3", KernelRefusal::OperandSizeBranch),
        ("c5 fe 6f 06 c3", KernelRefusal::NotInTable),
        ("c5 f9 ef c0 c3", KernelRefusal::NotInTable),
        ("c4 e1 79 ef c0 c3", KernelRefusal::NotInTable),
        ("62 f1 7d 48 ef c0 c3", KernelRefusal::NotInTable),
        ("8f e9 78 c1 c0 c3", KernelRefusal::NotInTable),
        ("06", KernelRefusal::Undecodable),
    ] {
        let found = excluded(&Text::new(hex), 0);
        // The decoder says that IN is privileged; the kernel's table does not contain IN.
        let privileged = found == Some(KernelRefusal::Privileged.into()) && hex.starts_with("ec");
        assert!(privileged || found == Some(refusal.into()), "{hex}: {found:?}");
    }
    // The kernel accepts the SSE forms of these instructions. It accepts the AVX forms if the opcode is in
    // the table.
    for hex in [
        "66 0f ef c0 c3",
        "f3 0f 6f 06 c3",
        "c5 fc 10 06 c3",
        "c4 e1 7c 10 06 c3",
        "62 f1 7c 48 10 06 c3",
        "64 48 8b 04 25 28 00 00 00 c3",
        "48 90 c3",
        "8f 06 c3",
    ] {
        assert_eq!(excluded(&Text::new(hex), 0), None, "{hex}");
    }
    // lock dec [rdi]; push rbx: we choose the push, and the reason says why we do not choose the entry.
    let site = Text::new("f0 ff 0f 53 5b c3").choose().unwrap();
    assert_eq!((site.offset_in_function, site.kind), (3, SiteKind::Push));
    assert!(site.reason.contains("lock"), "{}", site.reason);
    // lock dec [rdi]; mov eax, edi: we choose a single-stepped instruction if there is no better one.
    assert_eq!(Text::new("f0 ff 0f 89 f8 c3").site(), (3, SiteKind::SingleStep));
    // No instruction accepts a probe.
    let refused = Text::new("cc").choose().unwrap_err();
    assert!(refused.to_string().contains("breakpoint already"), "{refused}");
}

#[test]
fn nops_are_those_that_kernels_emulate() {
    for (hex, kind) in [
        ("90 c3", SiteKind::Nop),
        ("48 90 c3", SiteKind::Nop),
        ("f3 90 c3", SiteKind::SingleStep),
        ("0f 1f 00 c3", SiteKind::LongNop),
        ("48 0f 1f 00 c3", SiteKind::LongNop),
        // In both instructions the operation is not 0: in the first because of the byte after the opcode, and
        // in the second because of REX.R.
        ("0f 1f 48 00 c3", SiteKind::SingleStep),
        ("44 0f 1f 00 c3", SiteKind::SingleStep),
    ] {
        assert_eq!(Text::new(hex).analyse().candidates[0].kind, kind, "{hex}");
    }
}

#[test]
fn repeated_string_instructions_trap_for_each_element() {
    for hex in ["f3 a4 c3", "f3 48 ab c3", "f2 ae c3", "f3 a6 c3"] {
        assert_eq!(excluded(&Text::new(hex), 0), Some(Exclusion::TrapsRepeatedly), "{hex}");
        assert_eq!(Text::new(hex).site().0, u32::try_from(bytes(hex).len() - 1).unwrap(), "{hex}: the ret");
    }
    assert_eq!(excluded(&Text::new("a4 c3"), 0), None);
    assert_eq!(excluded(&Text::new("f2 0f 10 06 c3"), 0), None, "movsd xmm0, [rsi]");
}

#[test]
fn calls_are_spared_under_shadow_stacks() {
    let mut text = Text::new("48 83 ec 08 e8 00 00 00 00 c3");
    text.shadow_stack = true;
    assert_eq!(text.site(), (0, SiteKind::SingleStep));
    assert_eq!(excluded(&text, 4), Some(Exclusion::ShadowStack));
    let mut indirect = Text::new("ff d0 c3");
    indirect.shadow_stack = true;
    assert!(matches!(indirect.choose(), Err(SiteRefusal::NoSite { exclusion: Exclusion::ShadowStack, .. })));
}

#[test]
fn depths_are_followed() {
    for (hex, depths, why) in [
        ("f3 0f 1e fa 55 41 57 c3", vec![Some(0), Some(0), Some(8), Some(16)], "pushes"),
        ("53 48 83 ec 20 c3", vec![Some(0), Some(8), Some(40)], "sub rsp, 32"),
        ("48 81 ec 00 10 00 00 c3", vec![Some(0), Some(4096)], "sub rsp, 4096"),
        ("48 83 c4 80 c3", vec![Some(0), Some(128)], "add rsp, -128"),
        ("48 8d 64 24 f0 c3", vec![Some(0), Some(16)], "lea rsp, [rsp - 16]"),
        ("48 8d 65 f8 c3", vec![Some(0), None], "lea rsp, [rbp - 8]"),
        ("48 8d 64 04 f0 c3", vec![Some(0), None], "lea rsp, [rsp + rax - 16]"),
        ("48 83 e4 e0 53 c3", vec![Some(0), None, None], "and rsp, -32"),
        ("48 29 c4 c3", vec![Some(0), None], "sub rsp, rax"),
        ("48 89 fc c3", vec![Some(0), None], "mov rsp, rdi"),
        ("48 94 c3", vec![Some(0), None], "xchg rax, rsp"),
        ("5c c3", vec![Some(0), None], "pop rsp"),
        ("53 5c c3", vec![Some(0), Some(8), None], "push rbx; pop rsp"),
        ("58 c3", vec![Some(0), None], "pop: above the return address"),
        ("53 5b c3", vec![Some(0), Some(8), Some(0)], "push; pop"),
        ("66 50 c3", vec![Some(0), Some(2)], "push ax"),
        ("6a 00 c3", vec![Some(0), Some(8)], "push 0"),
        ("54 c3", vec![Some(0), Some(8)], "push rsp"),
        ("ff 74 24 08 c3", vec![Some(0), Some(8)], "push [rsp + 8]"),
        ("83 ec 08 c3", vec![Some(0), None], "sub esp, 8"),
        ("c8 10 00 00 c3", vec![Some(0), None], "enter"),
        ("55 48 89 e5 c9 c3", vec![Some(0), Some(8), Some(8), None], "leave"),
    ] {
        let found: Vec<_> = Text::new(hex).analyse().candidates.iter().map(|step| step.stack_delta).collect();
        assert_eq!(found, depths, "{why}");
    }
}
