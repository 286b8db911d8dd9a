//! Counting in map values.
//!
//! A BPF program at a uprobe may be preempted, and another task may then run the same program on the same
//! CPU: a plain `+=` on a value of that CPU would lose counts. One atomic addition on a line that no other
//! CPU writes costs a few nanoseconds and is exact. (`AtomicU64` offers no `fetch_add` on the BPF target,
//! which has no compare-and-swap in its baseline; the intrinsic compiles to the one instruction.)

use core::intrinsics::{AtomicOrdering, atomic_xadd};

/// Adds to a counter in a map value.
#[inline(always)]
pub fn add(counter: *mut u64, amount: u64) {
    // SAFETY: callers pass a pointer into a live map value, aligned to 8.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, amount) };
}

/// Adds 1 to a counter in a map value and returns what it was before.
///
/// Not relaxed: LLVM compiles a relaxed addition to the instruction that fetches nothing, even where the
/// result is used, and the "result" is then the 1 that was added (seen with LLVM 22.1).
#[inline(always)]
pub fn next(counter: *mut u64) -> u64 {
    // SAFETY: as above.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, 1) }
}
