//! Which row of a policy holds.

use speed_bump_abi::{Control, Policy};

use crate::maps::POLICIES;

/// The policy as it is now.
///
/// The loader writes only the row that is not in force. So a row that is in force both before and after we
/// read it was read as it was written. If another row came into force meanwhile, that one counts.
#[inline(always)]
pub fn in_force(control: &Control, policy: u32) -> Option<Policy> {
    read(control, policy, |row| {
        // SAFETY: a live map value; the loader may change it at any moment.
        unsafe {
            Policy {
                delay_ns: (&raw const (*row).delay_ns).read_volatile(),
                frequency: (&raw const (*row).frequency).read_volatile(),
                signal: (&raw const (*row).signal).read_volatile(),
                or_spin: (&raw const (*row).or_spin).read_volatile(),
                signal_ns: (&raw const (*row).signal_ns).read_volatile(),
            }
        }
    })
}

/// The delay of the policy as it is now.
#[inline(always)]
pub fn delay_in_force(control: &Control, policy: u32) -> Option<u64> {
    // SAFETY: as above.
    read(control, policy, |row| unsafe { (&raw const (*row).delay_ns).read_volatile() })
}

#[inline(always)]
fn read<T>(control: &Control, policy: u32, of_row: impl Fn(*const Policy) -> T) -> Option<T> {
    let generation = || {
        // SAFETY: as above.
        unsafe { (&raw const control.generation).read_volatile() }
    };
    let row = |generation| POLICIES.get_ptr(Policy::row(policy, generation));
    let before = generation();
    let value = of_row(row(before)?);
    let after = generation();
    if before == after { Some(value) } else { row(after).map(of_row) }
}
