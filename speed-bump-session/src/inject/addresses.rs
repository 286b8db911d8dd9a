//! Checks whether there is address space for the helper. At its limit (`RLIMIT_AS`, `ulimit -v`) the process
//! itself would get `ENOMEM`, so the helper takes only a part of what is left.

use speed_bump_abi::control_block::LARGEST_BLOCK;

use super::InjectError;
use crate::{
    process::{Process, ProcessError},
    units::Bytes,
};

/// What loading takes besides the control block: the helper's image, the stack of its thread (1 MiB), and
/// memory that the dynamic loader and the C library allocate.
const FIXED: u64 = 4 << 20;
/// We take at most this part of what is left.
const PART: u64 = 2;
/// What the helper reserves for the smallest block.
const SMALLEST_BLOCK: u64 = 1 << 20;
/// The largest block for a process that locks its memory: then all of it is resident at once, used or not.
const LOCKED_BLOCK: u64 = 16 << 20;

/// A limit of address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    limit: Bytes,
    left: Bytes,
}

impl Limit {
    /// `None` if the process has no limit.
    fn read(process: &Process) -> Result<Option<Self>, ProcessError> {
        let Some(limit) = process.address_limit()? else { return Ok(None) };
        let taken = process.status()?.addresses;
        Ok(Some(Self { limit, left: Bytes(limit.0.saturating_sub(taken.0)) }))
    }

    /// How much the helper may reserve for a block; it reserves powers of two.
    fn block(self) -> u64 {
        let most = (self.left.0 / PART).saturating_sub(FIXED);
        most.checked_ilog2().map_or(0, |bits| 1 << bits)
    }
}

/// Refuses a process that has too few addresses left for the helper with the smallest block.
pub(super) fn check(process: &Process) -> Result<(), InjectError> {
    match Limit::read(process)? {
        Some(limit) if limit.block() < SMALLEST_BLOCK => Err(InjectError::NoAddresses {
            pid: process.pid(),
            left: limit.left,
            limit: limit.limit,
            needed: Bytes((SMALLEST_BLOCK + FIXED) * PART),
        }),
        _ => Ok(()),
    }
}

/// The size of the largest control block for a process, in bytes.
///
/// # Errors
/// It has ended, or we may not inspect it.
pub(crate) fn largest_block(process: &Process) -> Result<u64, ProcessError> {
    let by_limit = Limit::read(process)?.map_or(LARGEST_BLOCK as u64, Limit::block);
    let by_locking = if process.status()?.locked.0 > 0 { LOCKED_BLOCK } else { LARGEST_BLOCK as u64 };
    Ok(by_limit.min(by_locking))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_left_is_enough_for_the_block_and_the_rest() {
        let block = |left: u64| Limit { limit: Bytes(1 << 40), left: Bytes(left << 20) }.block() >> 20;
        assert_eq!([0, 7, 8, 9, 10, 64, 72, 1_000].map(block), [0, 0, 0, 0, 1, 16, 32, 256]);
    }
}
