//! Whether an answer says that its request failed: an HTTP/1 status of 5xx (the service failed), 408 (it gave
//! up waiting) or 429 (it does not want more).
//!
//! No tracepoint has what is sent. But the send returns in its own system call, whose arguments are still in
//! the task's registers. What is sent in other ways (io_uring, sendfile(2)), and what is encrypted before,
//! has no status.

use core::mem::offset_of;

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{
        bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_probe_read_user, generated::bpf_task_pt_regs,
    },
};

/// `HTTP/1.1 503`
const STATUS_LINE: usize = 12;
/// `msg_iov` of `struct user_msghdr` (include/linux/socket.h), with which a `struct mmsghdr` begins.
const MESSAGE_PARTS: u64 = 16;

#[cfg(bpf_target_arch = "x86_64")]
mod call {
    use super::{offset_of, pt_regs};

    pub const NUMBER: u64 = offset_of!(pt_regs, orig_rax) as u64;
    pub const SECOND_ARGUMENT: u64 = offset_of!(pt_regs, rsi) as u64;
    /// `write`, `sendto` (arch/x86/entry/syscalls/syscall_64.tbl)
    pub const OF_DATA: [u64; 2] = [1, 44];
    /// `writev`
    pub const OF_PARTS: u64 = 20;
    /// `sendmsg`, `sendmmsg`
    pub const OF_MESSAGES: [u64; 2] = [46, 307];
}

#[cfg(bpf_target_arch = "aarch64")]
mod call {
    use super::{offset_of, pt_regs};

    const REGISTER: usize = size_of::<u64>();
    pub const NUMBER: u64 = (offset_of!(pt_regs, regs) + 8 * REGISTER) as u64;
    pub const SECOND_ARGUMENT: u64 = (offset_of!(pt_regs, regs) + REGISTER) as u64;
    /// `write`, `sendto` (include/uapi/asm-generic/unistd.h)
    pub const OF_DATA: [u64; 2] = [64, 206];
    /// `writev`
    pub const OF_PARTS: u64 = 66;
    /// `sendmsg`, `sendmmsg`
    pub const OF_MESSAGES: [u64; 2] = [211, 269];
}

/// Whether the answer that the current task is sending says that its request failed.
#[inline(always)]
pub fn has_failed() -> bool {
    // SAFETY: the helpers have no preconditions.
    let registers = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
    let (Some(number), Some(argument)) =
        (register(registers, call::NUMBER), register(registers, call::SECOND_ARGUMENT))
    else {
        return false;
    };
    let data = if call::OF_DATA.contains(&number) {
        argument
    } else if number == call::OF_PARTS {
        user_word(argument)
    } else if call::OF_MESSAGES.contains(&number) {
        user_word(user_word(argument.wrapping_add(MESSAGE_PARTS)))
    } else {
        0
    };
    is_failure(data)
}

#[inline(always)]
fn register(registers: u64, offset: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((registers + offset) as *const u64) }.ok()
}

/// A word of the task's memory; 0 where there is none.
#[inline(always)]
fn user_word(address: u64) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u64) }.unwrap_or(0)
}

#[inline(always)]
fn is_failure(data: u64) -> bool {
    // SAFETY: the helper checks the address.
    let Ok(line) = (unsafe { bpf_probe_read_user(data as *const [u8; STATUS_LINE]) }) else { return false };
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', status @ ..] = line else { return false };
    status[0] == b'5' || status == *b"408" || status == *b"429"
}
