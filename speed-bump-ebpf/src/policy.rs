//! Which row of a policy holds.

use speed_bump_abi::{Control, Policy};

use crate::maps::POLICIES;

/// The policy as it is now.
///
/// The loader writes only the row that does not hold, so that one which holds before and after it was read is
/// as it was written. If another came to hold meanwhile, that one counts.
#[inline(always)]
pub fn in_force(control: &Control, policy: u32) -> Option<Policy> {
    let generation = || {
        // SAFETY: a live map value; the loader may change it at any moment.
        unsafe { (&raw const control.generation).read_volatile() }
    };
    let before = generation();
    let read = row(policy, before)?;
    let after = generation();
    if before == after { Some(read) } else { row(policy, after) }
}

#[inline(always)]
fn row(policy: u32, generation: u64) -> Option<Policy> {
    let row = POLICIES.get_ptr(Policy::row(policy, generation))?;
    // SAFETY: as above.
    unsafe {
        Some(Policy {
            delay_ns: (&raw const (*row).delay_ns).read_volatile(),
            frequency: (&raw const (*row).frequency).read_volatile(),
            signal: (&raw const (*row).signal).read_volatile(),
            or_spin: (&raw const (*row).or_spin).read_volatile(),
            signal_ns: (&raw const (*row).signal_ns).read_volatile(),
        })
    }
}
