//! aarch64: we refuse to inject, because remote calls are not implemented.

use crate::{sys::ptrace::Registers, units::VirtualAddress};

/// Why injecting is impossible on this architecture; `None` if it is possible.
pub(super) const UNSUPPORTED: Option<&str> = Some("aarch64");

/// `AUDIT_ARCH_AARCH64` (include/uapi/linux/audit.h): the number of the architecture in seccomp filters.
pub(super) const AUDIT_ARCH: u32 = 0xc000_00b7;

/// The numbers of system calls (include/uapi/asm-generic/unistd.h).
pub(super) mod number {
    pub(in super::super) const CLOSE: u64 = libc::SYS_close as u64;
    pub(in super::super) const MEMFD_CREATE: u64 = libc::SYS_memfd_create as u64;
}

/// Finds pieces of code for remote calls. We know none yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gadgets;

impl Gadgets {
    pub(super) fn search(&mut self, _address: VirtualAddress, _code: &[u8]) {}

    pub(super) fn complete(&self) -> Option<Code> {
        None
    }
}

/// This type has no values, so the functions that take one never run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Code {}

/// An interrupted system call of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InterruptedCall {
    pub(super) number: u64,
    pub(super) arguments: [u64; 6],
    pub(super) result: i64,
}

/// The state of a stopped thread.
#[derive(Clone, Debug)]
pub(super) struct Frame;

impl Frame {
    pub(super) fn new(_registers: &Registers, _extended: &[u8], _mask: u64) -> Self {
        Self
    }

    pub(super) fn context(&self) -> VirtualAddress {
        VirtualAddress(0)
    }

    pub(super) fn scratch(&self) -> VirtualAddress {
        VirtualAddress(0)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// The length of an instruction in bytes.
pub(super) const LONGEST_CALL: usize = 4;

pub(super) fn is_behind_call(_before: &[u8]) -> bool {
    false
}

pub(super) fn position(registers: &Registers) -> (VirtualAddress, VirtualAddress) {
    (VirtualAddress(registers.pc), VirtualAddress(registers.sp))
}

pub(super) fn interrupted_call(_registers: &Registers) -> Option<InterruptedCall> {
    None
}

pub(super) fn call_again(_registers: &mut Registers) {}

pub(super) fn needs_restart_call(_registers: &Registers) -> bool {
    false
}

pub(super) fn call_fails(_registers: &mut Registers, _errno: i32) {}

pub(super) fn system_call(
    code: &Code,
    _frame: &Frame,
    _number: u64,
    _arguments: [u64; 6],
) -> (Registers, [u64; 1]) {
    match *code {}
}

pub(super) fn function_call(
    code: &Code,
    _frame: &Frame,
    _function: VirtualAddress,
    _arguments: [u64; 2],
) -> (Registers, [u64; 2]) {
    match *code {}
}

pub(super) fn result(_registers: &Registers) -> i64 {
    i64::from(-libc::ENOSYS)
}

pub(super) fn function_result(code: &Code, _frame: &Frame, _registers: &Registers) -> Option<u32> {
    match *code {}
}

pub(super) fn replace_call(code: &Code, _registers: &mut Registers, _number: u64, _argument: u64) {
    match *code {}
}
