//! How cold the way back to the function is going to be.
//!
//! While the program spins, whoever shares the core's caches takes what the kernel needs afterwards: the way
//! back takes 0.1 to 0.4 us longer after 100 us, and 1 us and more after 1 ms, more or less from one second
//! to the next. When the program sees signs of that, it is too late to make up for it in the same call. So it
//! uses what the last calls of the function saw.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use speed_bump_abi::{Coldness, FunctionStats, Telltale, policy::running_median};

use crate::maps::{COLDNESS, TELLTALE};

/// The longest walk that is kept: longer ones were interrupted.
const MOST_NS: u64 = u16::MAX as u64;

/// How much more the way back costs after a spin of `spin_ns` than a warm one, by the last calls, in ns.
#[inline(always)]
pub fn more_ns(stats: *const FunctionStats, spin_ns: u64) -> u64 {
    // SAFETY: `stats` points to a live map value; any value of it will do.
    let (last_ns, of) = unsafe {
        (
            u64::from((&raw const (*stats).telltale_ns).read_volatile()),
            (&raw const (*stats).telltale_of).read_volatile(),
        )
    };
    // What was seen after spins of another length says nothing of this one.
    let last_ns = if of == FunctionStats::in_short(spin_ns) { last_ns } else { 0 };
    COLDNESS.get(Coldness::WAY_BACK).map_or(0, |coldness| coldness.more_after_spin_ns(last_ns, spin_ns))
}

/// Walks the memory from line to line, each load waiting for the one before.
#[inline(always)]
pub fn walk() {
    let Some(telltale) = TELLTALE.get_ptr(0) else { return };
    let mut line = 0;
    for _ in 0..Telltale::LINES {
        // SAFETY: `telltale` points to a live map value, and `line` is a line of it.
        let zero = unsafe { (&raw const (*telltale).lines[line][0]).read_volatile() };
        line = (line + Telltale::STEP + zero as usize) % Telltale::LINES;
    }
}

/// Walks again, after a spin of `spin_ns` that ended at `ended_ns`, and keeps what that took.
#[inline(always)]
pub fn observe(stats: *mut FunctionStats, spin_ns: u64, ended_ns: u64) {
    walk();
    // SAFETY: the helper has no preconditions.
    let took_ns = unsafe { bpf_ktime_get_ns() } - ended_ns;
    // SAFETY: `stats` points to a live map value. A task that preempted this one may do the same: one
    // of the two values stays, and either will do.
    unsafe {
        let (median_ns, of) = (&raw mut (*stats).telltale_ns, &raw mut (*stats).telltale_of);
        let this = FunctionStats::in_short(spin_ns);
        let last_ns = if of.read_volatile() == this { median_ns.read_volatile() } else { 0 };
        let median = running_median(u64::from(last_ns), took_ns);
        median_ns.write_volatile(if median > MOST_NS { MOST_NS } else { median } as u16);
        of.write_volatile(this);
    }
}
