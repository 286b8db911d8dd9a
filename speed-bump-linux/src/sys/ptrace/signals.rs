//! The signals of a traced thread: the signal that the thread stopped for, the pending signals, and the
//! blocked ones.

use std::{io, mem::MaybeUninit};

use super::{Tracee, count, request};
use crate::units::VirtualAddress;

/// From include/uapi/linux/ptrace.h.
const PTRACE_PEEKSIGINFO: libc::c_uint = 0x4209;
/// From include/uapi/asm-generic/siginfo.h.
const SI_KERNEL: libc::c_int = 0x80;

/// `struct ptrace_peeksiginfo_args`: which of the pending signals to return.
#[repr(C)]
struct PeekArguments {
    offset: u64,
    flags: u32,
    count: i32,
}

impl Tracee {
    /// Whether a process or the thread itself sent the signal that the thread stopped for. (Otherwise the
    /// kernel sent it.)
    ///
    /// # Errors
    /// See [`Tracee::registers`]; `EINVAL` if the thread did not stop for a signal.
    pub fn signal_was_sent(&self) -> io::Result<bool> {
        // SI_USER, SI_QUEUE, SI_TKILL and similar codes are not positive
        // (include/uapi/asm-generic/siginfo.h).
        Ok(self.signal_info()?.si_code <= 0)
    }

    /// The instruction at which the processor raised the SIGTRAP that the thread has stopped for. `None` if
    /// the processor did not raise the signal, or if it is another signal.
    ///
    /// # Errors
    /// See [`Tracee::signal_was_sent`].
    pub fn trapped_at(&self) -> io::Result<Option<VirtualAddress>> {
        let info = self.signal_info()?;
        // The SIGTRAP of `int3` has no address; its code is SI_KERNEL (arch/x86/kernel/traps.c,
        // `do_int3_user`).
        let by_processor = info.si_signo == libc::SIGTRAP && (1..SI_KERNEL).contains(&info.si_code);
        // SAFETY: for these codes the kernel fills in the address (kernel/signal.c, `force_sig_fault`).
        Ok(by_processor.then(|| VirtualAddress(unsafe { info.si_addr() } as u64)))
    }

    fn signal_info(&self) -> io::Result<libc::siginfo_t> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        request(libc::PTRACE_GETSIGINFO, self.thread, 0, info.as_mut_ptr() as usize)?;
        // SAFETY: the structure holds plain integers, and was zeroed or filled in.
        Ok(unsafe { info.assume_init() })
    }

    /// Whether a signal is pending for this one thread.
    ///
    /// # Errors
    /// See [`Tracee::registers`].
    pub fn is_pending(&self, signal: i32) -> io::Result<bool> {
        const AT_ONCE: usize = 8;
        let mut infos = [const { MaybeUninit::<libc::siginfo_t>::zeroed() }; AT_ONCE];
        let mut from = PeekArguments { offset: 0, flags: 0, count: AT_ONCE as i32 };
        loop {
            let (address, data) = (&raw const from as usize, infos.as_mut_ptr() as usize);
            let found = count(PTRACE_PEEKSIGINFO, self.thread, address, data)?;
            // SAFETY: the structure holds plain integers, and was zeroed or filled in.
            let is_it =
                |info: &MaybeUninit<libc::siginfo_t>| unsafe { info.assume_init() }.si_signo == signal;
            if infos.iter().take(found).any(is_it) {
                return Ok(true);
            }
            if found < AT_ONCE {
                return Ok(false);
            }
            from.offset += AT_ONCE as u64;
        }
    }

    /// The signals that the thread blocks, one bit for each. Inside `sigsuspend` and similar calls, this is
    /// the set that the thread blocked before the call.
    ///
    /// # Errors
    /// See [`Tracee::registers`].
    pub fn signal_mask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        request(libc::PTRACE_GETSIGMASK, self.thread, size_of::<u64>(), &raw mut mask as usize)?;
        Ok(mask)
    }

    /// Changes the set of signals that the thread blocks.
    ///
    /// # Errors
    /// See [`Tracee::registers`].
    pub fn set_signal_mask(&self, mask: u64) -> io::Result<()> {
        request(libc::PTRACE_SETSIGMASK, self.thread, size_of::<u64>(), &raw const mask as usize)
    }
}
