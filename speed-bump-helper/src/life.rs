//! Whether the helper's thread lives in this process, and whether counters have a single writer.
//!
//! A forked child inherits the helper's memory, but not its thread. So these words are in a page that the
//! kernel zeroes in children.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use crate::sys;

/// The contents of that page.
#[repr(C)]
struct Words {
    claim: AtomicU32,
    /// 1: the block of the session with the claim is mapped.
    has_block: AtomicU32,
    /// 1: see [`count_alone`].
    counts_alone: AtomicU32,
}

static PAGE: AtomicPtr<Words> = AtomicPtr::new(ptr::null_mut());

const NOBODY: u32 = 0;
const SOMEBODY: u32 = 1;

/// Claims the process for one thread.
///
/// # Errors
/// `Ok(false)`: another thread has the claim. Otherwise the kernel's error for the page.
pub(crate) fn claim() -> Result<bool, sys::Errno> {
    let words = words()?;
    Ok(words.claim.compare_exchange(NOBODY, SOMEBODY, Ordering::AcqRel, Ordering::Acquire).is_ok())
}

/// Gives the claim back.
pub(crate) fn release() {
    if let Some(words) = existing() {
        words.counts_alone.store(0, Ordering::Release);
        words.has_block.store(0, Ordering::Release);
        words.claim.store(NOBODY, Ordering::Release);
    }
}

/// The owner of the claim has mapped the block of its session.
pub(crate) fn block_is_mapped() {
    if let Some(words) = existing() {
        words.has_block.store(1, Ordering::Release);
    }
}

/// From now on, until [`release`], one thread at a time counts in this process, and no other process uses the
/// same counters. Does nothing in a process with its parent's block.
pub(crate) fn count_alone() {
    if let Some(words) = existing()
        && words.has_block.load(Ordering::Acquire) != 0
    {
        words.counts_alone.store(1, Ordering::Release);
    }
}

/// Whether [`count_alone`] is in effect. A forked child inherits the block, but not this.
#[inline]
pub(crate) fn counts_alone() -> bool {
    existing().is_some_and(|words| words.counts_alone.load(Ordering::Acquire) != 0)
}

/// Whether a helper thread lives, or is about to start.
pub(crate) fn is_claimed() -> bool {
    existing().is_some_and(|words| words.claim.load(Ordering::Acquire) == SOMEBODY)
}

#[inline]
fn existing() -> Option<&'static Words> {
    // SAFETY: null, or a page that is never freed.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

fn words() -> Result<&'static Words, sys::Errno> {
    if let Some(words) = existing() {
        return Ok(words);
    }
    let page = sys::allocate(sys::PAGE)?;
    let give_up = |page: NonNull<u8>| {
        // SAFETY: no other code has its address yet.
        unsafe { sys::free(page, sys::PAGE) }
    };
    if let Err(error) = sys::wipe_on_fork(page, sys::PAGE) {
        give_up(page);
        return Err(error);
    }
    let ours = page.cast::<Words>();
    match PAGE.compare_exchange(ptr::null_mut(), ours.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: zeroed, aligned, and never freed from here on.
        Ok(_) => Ok(unsafe { ours.as_ref() }),
        Err(theirs) => {
            give_up(page);
            // SAFETY: not null, as the exchange failed; never freed.
            Ok(unsafe { &*theirs })
        }
    }
}
