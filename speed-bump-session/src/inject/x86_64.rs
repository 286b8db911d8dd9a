//! x86-64: the meaning of registers, and how to make a stopped thread run a function or a system call.
//!
//! Everything that we make a thread run ends in `rt_sigreturn`, on a frame with the thread's own state. While
//! we trace the thread, it never gets there. If someone kills us, the thread returns to its own work through
//! this frame.

mod frame;
mod return_address;

use crate::{sys::ptrace::Registers, units::VirtualAddress};

pub(super) use frame::Frame;
pub(super) use return_address::{LONGEST_CALL, is_behind_call};

/// Why injecting is impossible on this architecture; `None` if it is possible.
pub(super) const UNSUPPORTED: Option<&str> = None;

/// `AUDIT_ARCH_X86_64` (include/uapi/linux/audit.h): the number of the architecture in seccomp filters.
pub(super) const AUDIT_ARCH: u32 = 0xc000_003e;

/// The numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl).
pub(super) mod number {
    pub(in super::super) const CLOSE: u64 = libc::SYS_close as u64;
    pub(in super::super) const MEMFD_CREATE: u64 = libc::SYS_memfd_create as u64;
    pub(super) const RT_SIGRETURN: u64 = libc::SYS_rt_sigreturn as u64;
}

/// `syscall; ret`.
const SYSTEM_CALL_RETURN: &[u8] = &[0x0f, 0x05, 0xc3];
/// The length of `syscall`.
const SYSTEM_CALL_BYTES: u64 = 2;
/// `mov $15, %rax; syscall`, as in the signal restorers of glibc and musl, and its shorter form.
const SIGNAL_RETURN: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];
/// `xchg %eax, %REG; ret`.
const KEEP_RESULT: [(&[u8], Keeper); 5] = [
    (&[0x93, 0xc3], Keeper::Rbx),
    (&[0x95, 0xc3], Keeper::Rbp),
    (&[0x97, 0xc3], Keeper::Rdi),
    (&[0x96, 0xc3], Keeper::Rsi),
    (&[0x92, 0xc3], Keeper::Rdx),
];

/// The register to which we move a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    Rbx,
    Rbp,
    Rdi,
    Rsi,
    Rdx,
}

/// Pieces of the process's own code for remote calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gadgets {
    system_call: Option<VirtualAddress>,
    signal_return: Option<(VirtualAddress, u64)>,
    keep_result: Option<(VirtualAddress, Keeper)>,
}

impl Gadgets {
    /// Searches code at `address` in the process for missing pieces.
    pub(super) fn search(&mut self, address: VirtualAddress, code: &[u8]) {
        let find = |pattern: &[u8]| {
            let position = code.windows(pattern.len()).position(|window| window == pattern)?;
            Some(VirtualAddress(address.0 + position as u64))
        };
        self.system_call = self.system_call.or_else(|| find(SYSTEM_CALL_RETURN));
        self.signal_return = self.signal_return.or_else(|| {
            SIGNAL_RETURN.iter().find_map(|pattern| Some((find(pattern)?, pattern.len() as u64)))
        });
        self.keep_result = self
            .keep_result
            .or_else(|| KEEP_RESULT.iter().find_map(|(pattern, keeper)| Some((find(pattern)?, *keeper))));
    }

    /// All pieces, if we have found each.
    pub(super) fn complete(&self) -> Option<Code> {
        let (signal_return, length) = self.signal_return?;
        let (keep_result, keeper) = self.keep_result?;
        Some(Code {
            system_call: self.system_call?,
            signal_return,
            signal_return_end: VirtualAddress(signal_return.0 + length),
            keep_result,
            keeper,
        })
    }
}

/// The addresses of the pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    system_call: VirtualAddress,
    signal_return: VirtualAddress,
    signal_return_end: VirtualAddress,
    keep_result: VirtualAddress,
    keeper: Keeper,
}

/// An interrupted system call of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InterruptedCall {
    pub(super) number: u64,
    pub(super) arguments: [u64; 6],
    /// The result; special values mean that the kernel repeats the call.
    pub(super) result: i64,
}

/// The instruction pointer and the stack pointer.
pub(super) fn position(registers: &Registers) -> (VirtualAddress, VirtualAddress) {
    (VirtualAddress(registers.rip), VirtualAddress(registers.rsp))
}

/// The system call from which the thread was about to return. Returns `None` if the thread was stopped
/// between two instructions of its own.
pub(super) fn interrupted_call(registers: &Registers) -> Option<InterruptedCall> {
    (registers.orig_rax.cast_signed() >= 0).then_some(InterruptedCall {
        number: registers.orig_rax,
        arguments: [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9],
        result: registers.rax.cast_signed(),
    })
}

/// Makes the thread repeat its interrupted system call from the start.
pub(super) fn call_again(registers: &mut Registers) {
    registers.rax = registers.orig_rax;
    registers.rip -= SYSTEM_CALL_BYTES;
    registers.orig_rax = u64::MAX;
}

/// Whether the kernel would continue the interrupted call with `restart_syscall`.
pub(super) fn needs_restart_call(registers: &Registers) -> bool {
    const ERESTART_RESTARTBLOCK: i64 = -516;
    interrupted_call(registers).is_some_and(|call| call.result == ERESTART_RESTARTBLOCK)
}

/// Makes the interrupted system call return an error instead of continuing.
pub(super) fn call_fails(registers: &mut Registers, errno: i32) {
    registers.rax = i64::from(-errno).cast_unsigned();
}

/// The registers for a system call, and the words for the stack.
pub(super) fn system_call(
    code: &Code,
    frame: &Frame,
    number: u64,
    arguments: [u64; 6],
) -> (Registers, [u64; 1]) {
    let mut registers = frame.base();
    registers.rip = code.system_call.0;
    registers.rsp = frame.context().0 - 8;
    registers.rax = number;
    [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
    (registers, [code.signal_return.0])
}

/// The registers for calling a function with two integer arguments, and the words for the stack.
pub(super) fn function_call(
    code: &Code,
    frame: &Frame,
    function: VirtualAddress,
    arguments: [u64; 2],
) -> (Registers, [u64; 2]) {
    let mut registers = frame.base();
    registers.rip = function.0;
    registers.rsp = frame.context().0 - 16;
    // The number of vector registers that hold arguments. Functions with variable arguments read this number.
    registers.rax = 0;
    [registers.rdi, registers.rsi] = arguments;
    (registers, [code.keep_result.0, code.signal_return.0])
}

/// The result of a system call, when the thread is stopped at its exit.
pub(super) fn result(registers: &Registers) -> i64 {
    registers.rax.cast_signed()
}

/// The result of a function, when the thread is about to enter `rt_sigreturn` after the function. Returns
/// `None` elsewhere.
pub(super) fn function_result(code: &Code, frame: &Frame, registers: &Registers) -> Option<u32> {
    let there = registers.rip == code.signal_return_end.0
        && registers.rsp == frame.context().0
        && registers.orig_rax == number::RT_SIGRETURN
        && at_entry(registers);
    let kept = match code.keeper {
        Keeper::Rbx => registers.rbx,
        Keeper::Rbp => registers.rbp,
        Keeper::Rdi => registers.rdi,
        Keeper::Rsi => registers.rsi,
        Keeper::Rdx => registers.rdx,
    };
    there.then_some(kept as u32)
}

/// The thread is about to enter a system call. Replaces this call by another one. After the other call, the
/// thread is again about to enter `rt_sigreturn`.
pub(super) fn replace_call(code: &Code, registers: &mut Registers, number: u64, argument: u64) {
    registers.orig_rax = number;
    registers.rdi = argument;
    registers.rip = code.signal_return.0;
}

/// Whether the thread is stopped at the entry of a system call, and not at its exit.
fn at_entry(registers: &Registers) -> bool {
    registers.rax.cast_signed() == i64::from(-libc::ENOSYS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pieces_are_found_in_several_files() {
        let mut gadgets = Gadgets::default();
        gadgets.search(VirtualAddress(0x1000), &[0x90, 0x0f, 0x05, 0xc3, 0xb8, 15, 0, 0, 0, 0x0f, 0x05]);
        assert!(gadgets.complete().is_none());
        gadgets.search(VirtualAddress(0x2000), &[0x0f, 0x05, 0xc3, 0x95, 0xc3]);
        let code = gadgets.complete().unwrap();
        assert_eq!(code.system_call, VirtualAddress(0x1001));
        assert_eq!(code.signal_return, VirtualAddress(0x1004));
        assert_eq!(code.signal_return_end, VirtualAddress(0x100b));
        assert_eq!((code.keep_result, code.keeper), (VirtualAddress(0x2003), Keeper::Rbp));
    }
}
