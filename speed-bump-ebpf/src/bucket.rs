//! The bound on what a thread is delayed: its bucket, and whether that has room for another delay.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use speed_bump_abi::{Bound, Bucket, Control};

use crate::maps::BUCKETS;

/// The share of the bound; 0 without one.
#[inline(always)]
pub fn share(control: &Control) -> u64 {
    // SAFETY: a live map value; the loader may change it at any moment.
    unsafe { (&raw const control.bound.share).read_volatile() }
}

/// Whether a bound of this share leaves the calling thread room for a delay of this length that begins now.
/// If so, the delay takes the room. If there is no room for another bucket, returns `false`. It is a function
/// of its own in BPF too, so that the object contains it only once.
#[inline(never)]
pub fn has_room(control: &Control, share: u64, delay_ns: u64, now_ns: u64) -> bool {
    // SAFETY: as above.
    let room = unsafe { (&raw const control.bound.room).read_volatile() };
    let bound = Bound { share, room };
    let thread = bpf_get_current_pid_tgid();
    if let Some(bucket) = BUCKETS.get_ptr_mut(thread) {
        // SAFETY: a live map value, which no other thread has.
        let Some(next) = bound.add(unsafe { *bucket }, delay_ns, now_ns) else { return false };
        // SAFETY: as above.
        unsafe { *bucket = next };
        return true;
    }
    let Some(first) = bound.add(Bucket { level: 0, at: now_ns }, delay_ns, now_ns) else { return false };
    BUCKETS.insert(thread, first, 0).is_ok()
}
