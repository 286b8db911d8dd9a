//! A signal frame through which a thread returns to the place where it was stopped.
//!
//! The frame has the kernel's own layout (arch/x86/include/asm/sigframe.h `rt_sigframe`,
//! include/uapi/asm/ucontext.h, sigcontext.h), as far as `rt_sigreturn` reads it.

use crate::{sys::ptrace::Registers, units::VirtualAddress};

/// The 128 bytes below the stack pointer belong to the interrupted function (System V ABI).
const RED_ZONE: u64 = 128;
/// The size of `struct ucontext` with the kernel's 8 bytes of signal mask.
const CONTEXT_BYTES: usize = 304;
/// The number of bytes for data, after the context. Calls get pointers to this data.
const SCRATCH_BYTES: u64 = 128;
/// The offset of `fpx_sw_bytes` in the FXSAVE area. These bytes describe the state after this area. In
/// `NT_X86_XSTATE`, the features are at this offset.
const SOFTWARE_BYTES: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// `uc_flags`: the extended state is in the format of XSAVE, and the stack segment is saved.
const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
/// An invalid mode of `sigaltstack`: the kernel then leaves the alternative stack as it is.
const LEAVE_ALTERNATIVE_STACK: u64 = 0x40;

/// If a call has one of these results and no handler runs, the kernel repeats the call
/// (include/linux/errno.h).
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;

/// The state of a stopped thread, and the address of its signal frame on its stack.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    registers: Registers,
    context: u64,
    scratch: u64,
    bytes: Vec<u8>,
}

impl Frame {
    /// Lays out a frame below the thread's stack pointer.
    pub(crate) fn new(registers: &Registers, extended: &[u8], mask: u64) -> Self {
        let state_bytes = extended.len() as u64 + 4;
        let top = registers.rsp.wrapping_sub(RED_ZONE);
        // XRSTOR needs an alignment of 64 bytes.
        let state = top.wrapping_sub(state_bytes) & !63;
        let scratch = state.wrapping_sub(SCRATCH_BYTES);
        // At the start of a function, the stack pointer must be 8 modulo 16. Here the stack pointer is two
        // words below the context.
        let context = (scratch.wrapping_sub(CONTEXT_BYTES as u64) & !15).wrapping_sub(8);

        let mut bytes = vec![0; usize::try_from(state - context).unwrap_or(0)];
        let mut put = |at: usize, value: u64| {
            if let Some(place) = bytes.get_mut(at..at + 8) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        };
        let r = resumed(registers);
        put(0, UC_FP_XSTATE | UC_SIGCONTEXT_SS);
        put(24, LEAVE_ALTERNATIVE_STACK);
        let general = [
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax,
            r.rcx, r.rsp, r.rip, r.eflags,
        ];
        for (index, value) in general.into_iter().enumerate() {
            put(40 + 8 * index, value);
        }
        put(184, (r.cs & 0xffff) | (r.ss & 0xffff) << 48);
        put(224, state);
        put(296, mask);
        bytes.extend(signal_frame_state(extended));
        Self { registers: *registers, context, scratch, bytes }
    }

    /// The address of the context. At the entry of `rt_sigreturn`, the stack pointer has this value.
    pub(crate) fn context(&self) -> VirtualAddress {
        VirtualAddress(self.context)
    }

    /// The address of [`SCRATCH_BYTES`] bytes that calls do not use.
    pub(crate) fn scratch(&self) -> VirtualAddress {
        VirtualAddress(self.scratch)
    }

    /// The bytes to write at [`Frame::context`].
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The thread's own registers, as if it were in no system call.
    pub(crate) fn base(&self) -> Registers {
        // The direction flag is clear at a function's entry (System V ABI).
        const DIRECTION: u64 = 1 << 10;
        let mut registers = self.registers;
        registers.orig_rax = u64::MAX;
        registers.eflags &= !DIRECTION;
        registers
    }
}

/// The registers with which the thread goes on as if a signal handler had run. If the kernel allows this, the
/// thread repeats its system call. Otherwise the call fails with `EINTR`.
fn resumed(registers: &Registers) -> Registers {
    let mut registers = *registers;
    if let Some(call) = super::interrupted_call(&registers) {
        match call.result {
            ERESTARTSYS | ERESTARTNOINTR => super::call_again(&mut registers),
            ERESTARTNOHAND | ERESTART_RESTARTBLOCK => super::call_fails(&mut registers, libc::EINTR),
            _ => {}
        }
    }
    registers
}

/// The extended state, with the additional words that a signal frame has.
fn signal_frame_state(extended: &[u8]) -> Vec<u8> {
    let mut state = extended.to_vec();
    let length = u32::try_from(state.len()).unwrap_or(u32::MAX);
    if let Some(words) = state.get_mut(SOFTWARE_BYTES..SOFTWARE_BYTES + 24) {
        // The fields of `struct _fpx_sw_bytes`: magic, extended size, features (u64), state size.
        let features: [u8; 8] =
            [words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]];
        words[0..4].copy_from_slice(&MAGIC1.to_le_bytes());
        words[4..8].copy_from_slice(&(length + 4).to_le_bytes());
        words[8..16].copy_from_slice(&features);
        words[16..20].copy_from_slice(&length.to_le_bytes());
        words[20..24].fill(0);
    }
    state.extend(MAGIC2.to_le_bytes());
    state
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stopped() -> Registers {
        // SAFETY: the struct only has integers, for which zero is valid.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        registers.rsp = 0x7fff_0000_1237;
        registers.rip = 0x40_1002;
        registers.orig_rax = 35;
        registers.rax = ERESTART_RESTARTBLOCK.cast_unsigned();
        registers
    }

    #[test]
    fn the_frame_keeps_clear_of_the_red_zone_and_is_aligned() {
        let frame = Frame::new(&stopped(), &[0; 2440], 5);
        assert_eq!(frame.context % 16, 8);
        let state = u64::from_le_bytes(frame.bytes[224..232].try_into().unwrap());
        assert_eq!(state % 64, 0);
        assert_eq!(frame.bytes.len() as u64, state - frame.context + 2444);
        assert!(frame.context + frame.bytes.len() as u64 <= 0x7fff_0000_1237 - 128);
        assert!(frame.scratch >= frame.context + 304 && frame.scratch + 128 <= state);
        assert_eq!(frame.bytes[296], 5, "the mask");
    }

    #[test]
    fn a_timed_call_would_fail_with_eintr_and_an_untimed_one_be_made_again() {
        let mut registers = stopped();
        assert_eq!(resumed(&registers).rax.cast_signed(), -4);
        assert_eq!(resumed(&registers).rip, 0x40_1002);
        registers.rax = ERESTARTSYS.cast_unsigned();
        assert_eq!((resumed(&registers).rax, resumed(&registers).rip), (35, 0x40_1000));
    }
}
