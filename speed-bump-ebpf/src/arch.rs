//! What differs between processors: where `pt_regs` keeps the stack pointer and a function's arguments.

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

/// The first two arguments of the function whose first instruction this is.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn first_arguments(registers: &pt_regs) -> [u64; 2] {
    [registers.rdi, registers.rsi]
}

/// The first two arguments of the function whose first instruction this is.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub fn first_arguments(registers: &pt_regs) -> [u64; 2] {
    [registers.regs[0], registers.regs[1]]
}
