//! What the programs decide, where the session is to show it: `-vv` loads the object with the feature `log`.
//! The other object has none of this code.

#[cfg(feature = "log")]
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
#[cfg(feature = "log")]
use aya_log_ebpf::debug;
use speed_bump_abi::NotDelayed;

#[cfg(feature = "log")]
use crate::maps::LOG_LIMITS;

/// A call was not delayed, or will not be.
#[cfg(not(feature = "log"))]
#[inline(always)]
pub fn not_delayed(_why: NotDelayed, _function: u32) {}

/// A call was not delayed, or will not be. It is a function of its own in BPF too, so that the object
/// contains it only once.
#[cfg(feature = "log")]
#[inline(never)]
pub fn not_delayed(why: NotDelayed, function: u32) {
    let Some(limit) = LOG_LIMITS.get_ptr_mut(why as u32) else { return };
    // SAFETY: the helper has no preconditions, and `limit` points to a live per-CPU map value.
    if !unsafe { (*limit).allows(bpf_ktime_get_ns()) } {
        return;
    }
    let process = (bpf_get_current_pid_tgid() >> 32) as u32;
    // The format is read by the loader, which puts the function's name in the place of its number.
    match why {
        NotDelayed::NoPolicy => {
            debug!((), "{} in process {} not delayed: no target selects it any more", function, process)
        }
        NotDelayed::WindowClosed => {
            debug!((), "{} in process {} not delayed: outside the window", function, process)
        }
        NotDelayed::Frequency => {
            debug!((), "{} in process {} not delayed: not its turn by `frequency`", function, process)
        }
        NotDelayed::NoDelay => debug!((), "{} in process {} not delayed: its delay is 0", function, process),
        NotDelayed::NoHelper => {
            debug!((), "{} in process {} not delayed by signal: not the helper's process", function, process)
        }
        NotDelayed::SignalBlocked => {
            debug!((), "{} in process {} not delayed by signal: the thread blocks it", function, process)
        }
        NotDelayed::OtherHandler => {
            debug!((), "{} in process {} not delayed by signal: its handler is not ours", function, process)
        }
        NotDelayed::NotItsFunction => {
            debug!((), "{} in process {} not counted: the process has no such function", function, process)
        }
        NotDelayed::Bound => {
            debug!((), "{} in process {} not delayed: by the bound on its thread", function, process)
        }
    }
}
