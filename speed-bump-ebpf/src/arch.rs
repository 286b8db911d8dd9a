//! What differs between processors: where `pt_regs` keeps the stack pointer and a function's arguments.

use core::mem::offset_of;

use aya_ebpf::bindings::pt_regs;
#[cfg(bpf_target_arch = "x86_64")]
use aya_ebpf::helpers::bpf_probe_read_user;

/// Where the stack pointer lies in `pt_regs`.
#[cfg(bpf_target_arch = "x86_64")]
pub const STACK_POINTER_OFFSET: u64 = offset_of!(pt_regs, rsp) as u64;

/// Where the stack pointer lies in `pt_regs`.
#[cfg(bpf_target_arch = "aarch64")]
pub const STACK_POINTER_OFFSET: u64 = offset_of!(pt_regs, sp) as u64;

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

/// The return address of the call that hit the probe: it lies `stack_delta` bytes above the stack pointer.
/// `None`: it is not readable.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn return_address(registers: &pt_regs, stack_delta: u32) -> Option<u64> {
    let place = stack_pointer(registers).wrapping_add(u64::from(stack_delta));
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(place as *const u64) }.ok()
}

/// The return address of the call that hit the probe, at the function's first instruction.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub fn return_address(registers: &pt_regs, _stack_delta: u32) -> Option<u64> {
    Some(registers.regs[30])
}

/// The processor's flags.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn flags(registers: &pt_regs) -> u64 {
    registers.eflags
}

/// The processor's flags, which nothing asks for yet.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub fn flags(_registers: &pt_regs) -> u64 {
    0
}

/// The first two arguments of the function whose first instruction this is, and the sixth.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn stub_arguments(registers: &pt_regs) -> [u64; 3] {
    [registers.rdi, registers.rsi, registers.r9]
}

/// The first two arguments of the function whose first instruction this is, and the sixth.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub fn stub_arguments(registers: &pt_regs) -> [u64; 3] {
    [registers.regs[0], registers.regs[1], registers.regs[5]]
}
