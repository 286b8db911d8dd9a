//! Checks whether there is address space for the helper. At the limit (`RLIMIT_AS`, `ulimit -v`) the process
//! itself would get `ENOMEM`. So the helper takes only a part of the address space that is left.

use speed_bump_abi::control_block::LARGEST_BLOCK;

use super::InjectError;
use crate::{
    process::{Process, ProcessError},
    units::Bytes,
};

/// The bytes that loading takes besides the control block: the helper's image, the stack of its thread (1
/// MiB), and memory that the dynamic loader and the C library allocate.
const FIXED: u64 = 4 << 20;
/// We divide the address space that is left by this number, and take at most the result.
const PART: u64 = 2;
/// The address space that the helper reserves for the smallest block, in bytes.
const SMALLEST_BLOCK: u64 = 1 << 20;
/// The largest block for a process that locks its memory. There the whole block is resident at once, even if
/// nobody uses it.
const LOCKED_BLOCK: u64 = 16 << 20;

/// The limit of a process's address space, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    limit: Bytes,
    left: Bytes,
}

impl Limit {
    /// Reads the limit; `None` if the process has none.
    fn read(process: &Process) -> Result<Option<Self>, ProcessError> {
        let Some(limit) = process.address_limit()? else { return Ok(None) };
        let taken = process.status()?.addresses;
        Ok(Some(Self { limit, left: Bytes(limit.0.saturating_sub(taken.0)) }))
    }

    /// The largest block for which the helper may reserve address space. The block is a power of two, because
    /// the helper reserves powers of two.
    fn block(self) -> u64 {
        let most = (self.left.0 / PART).saturating_sub(FIXED);
        most.checked_ilog2().map_or(0, |bits| 1 << bits)
    }
}

/// Refuses a process with too little address space for the helper and the smallest block.
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
/// The process has ended, or we may not inspect it.
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
