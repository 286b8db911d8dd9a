//! Stubs for aarch64. The kernel simulates a nop, and single-steps arithmetic.

use crate::probe::site::SiteKind;

std::arch::global_asm!(
    ".pushsection .text.speed_bump_stubs, \"ax\", @progbits",
    ".balign 32",
    "speed_bump_stub_nop: nop",
    "ret",
    ".balign 32",
    "speed_bump_stub_step: mov x0, xzr",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    safe fn speed_bump_stub_nop();
    safe fn speed_bump_stub_step();
}

pub(super) static STUBS: [(SiteKind, extern "C" fn()); 2] =
    [(SiteKind::Nop, speed_bump_stub_nop), (SiteKind::SingleStep, speed_bump_stub_step)];
