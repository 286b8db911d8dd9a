//! Stubs for x86-64. Each starts on a 32-byte boundary, so that no instruction crosses a cache line.

use crate::probe::site::SiteKind;

std::arch::global_asm!(
    ".pushsection .text.speed_bump_stubs, \"ax\", @progbits",
    ".balign 32",
    "speed_bump_stub_nop5: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "ret",
    ".balign 32",
    "speed_bump_stub_nop: nop",
    "ret",
    ".balign 32",
    "speed_bump_stub_long_nop: .byte 0x0f, 0x1f, 0x00",
    "ret",
    ".balign 32",
    "speed_bump_stub_push: push rbp",
    "pop rbp",
    "ret",
    ".balign 32",
    "speed_bump_stub_call: call 2f",
    "ret",
    "2: ret",
    ".balign 32",
    "speed_bump_stub_jmp: jmp 2f",
    "2: ret",
    ".balign 32",
    "speed_bump_stub_jcc: jz 2f",
    "2: ret",
    ".balign 32",
    "speed_bump_stub_step: xor eax, eax",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    safe fn speed_bump_stub_nop5();
    safe fn speed_bump_stub_nop();
    safe fn speed_bump_stub_long_nop();
    safe fn speed_bump_stub_push();
    safe fn speed_bump_stub_call();
    safe fn speed_bump_stub_jmp();
    safe fn speed_bump_stub_jcc();
    safe fn speed_bump_stub_step();
}

pub(super) static STUBS: [(SiteKind, extern "C" fn()); 8] = [
    (SiteKind::Nop5, speed_bump_stub_nop5),
    (SiteKind::Nop, speed_bump_stub_nop),
    (SiteKind::LongNop, speed_bump_stub_long_nop),
    (SiteKind::Push, speed_bump_stub_push),
    (SiteKind::Call, speed_bump_stub_call),
    (SiteKind::Jmp, speed_bump_stub_jmp),
    (SiteKind::Jcc, speed_bump_stub_jcc),
    (SiteKind::SingleStep, speed_bump_stub_step),
];
