//! The engine `signal`: has the helper spin, in user mode, on a signal to the calling thread.
//!
//! A real-time signal without a handler ends a process. So the program does not rely on what the loader
//! learned some time ago, but checks what the kernel would do at this moment: it sends the signal only if the
//! handler is the helper's and the thread does not block the signal. It is delivered on the way back from the
//! trap, before the function's first instruction.

use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_get_current_task, bpf_probe_read_kernel, generated::bpf_send_signal_thread,
};
use speed_bump_abi::{Handshake, NotDelayed};

use crate::{maps::HANDSHAKES, task::field};

/// Offset of `task_struct.group_leader`.
#[unsafe(no_mangle)]
static TASK_LEADER_OFFSET: u32 = 0;
/// Offset of `task_struct.start_boottime`: nanoseconds since boot.
#[unsafe(no_mangle)]
static TASK_START_OFFSET: u32 = 0;
/// Offset of `task_struct.blocked`: signals, a bit each.
#[unsafe(no_mangle)]
static TASK_BLOCKED_OFFSET: u32 = 0;
/// Offset of `task_struct.sighand`.
#[unsafe(no_mangle)]
static TASK_SIGHAND_OFFSET: u32 = 0;
/// Offset of `sighand_struct.action`: an array of `k_sigaction`, each of which begins with the handler's
/// address.
#[unsafe(no_mangle)]
static SIGHAND_ACTION_OFFSET: u32 = 0;
/// Bytes of a `k_sigaction`.
#[unsafe(no_mangle)]
static ACTION_BYTES: u32 = 0;

/// Sends the calling thread this signal, 1 to 64, if that is safe. Returns whether it was sent.
#[inline(always)]
pub fn send(signal: u32) -> bool {
    // SAFETY: the helper takes a number.
    obstacle(signal).is_none() && unsafe { bpf_send_signal_thread(signal) == 0 }
}

/// Why it is not safe at this moment to send the calling thread this signal.
#[inline(always)]
pub fn obstacle(signal: u32) -> Option<NotDelayed> {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: the value is copied at once.
    let Some(handshake) = (unsafe { HANDSHAKES.get(tgid).copied() }) else {
        return Some(NotDelayed::NoHelper);
    };
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    if handshake.handler == 0 || started(task) != Some(handshake.started) {
        return Some(NotDelayed::NoHelper);
    }
    let bit = u64::from(signal.wrapping_sub(1)) & 63;
    // If the mask cannot be read, we assume that the signal is blocked.
    if field::<u64>(task, &TASK_BLOCKED_OFFSET).is_none_or(|blocked| blocked >> bit & 1 != 0) {
        return Some(NotDelayed::SignalBlocked);
    }
    (handler(task, bit) != Some(handshake.handler)).then_some(NotDelayed::OtherHandler)
}

/// When the process of a thread started, in the ticks of a [`Handshake`].
#[inline(always)]
pub fn started(task: u64) -> Option<u64> {
    let leader = field::<u64>(task, &TASK_LEADER_OFFSET)?;
    Some(field::<u64>(leader, &TASK_START_OFFSET)? / Handshake::TICK_NS)
}

#[inline(always)]
fn handler(task: u64, bit: u64) -> Option<u64> {
    // SAFETY: constants of this object; the loader may have replaced their values.
    let (actions, bytes) = unsafe {
        (
            core::ptr::read_volatile(&raw const SIGHAND_ACTION_OFFSET),
            core::ptr::read_volatile(&raw const ACTION_BYTES),
        )
    };
    let table = field::<u64>(task, &TASK_SIGHAND_OFFSET)? + u64::from(actions);
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((table + bit * u64::from(bytes)) as *const u64) }.ok()
}
