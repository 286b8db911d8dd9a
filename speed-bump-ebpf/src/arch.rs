//! What differs between processors: where `pt_regs` keeps the stack pointer.

use aya_ebpf::bindings::pt_regs;

/// The caller's stack pointer.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn stack_pointer(registers: &pt_regs) -> u64 {
    registers.rsp
}

/// The caller's stack pointer.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub fn stack_pointer(registers: &pt_regs) -> u64 {
    registers.sp
}
