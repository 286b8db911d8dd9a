//! Whether the helper's thread lives in this process.
//!
//! A forked child inherits the helper's memory, but not its thread. So the word lies in a page that the
//! kernel zeroes in children.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use crate::sys;

static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

const NOBODY: u32 = 0;
const SOMEBODY: u32 = 1;

/// Claims the process for one thread.
///
/// # Errors
/// `Ok(false)`: there is one already. Otherwise what the kernel said when it was asked for the page.
pub(crate) fn claim() -> Result<bool, sys::Errno> {
    let word = word()?;
    Ok(word.compare_exchange(NOBODY, SOMEBODY, Ordering::AcqRel, Ordering::Acquire).is_ok())
}

/// Gives the claim back.
pub(crate) fn release() {
    if let Some(word) = existing() {
        word.store(NOBODY, Ordering::Release);
    }
}

/// Whether a thread lives, or is about to.
pub(crate) fn is_claimed() -> bool {
    existing().is_some_and(|word| word.load(Ordering::Acquire) == SOMEBODY)
}

fn existing() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a page that is never freed.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

fn word() -> Result<&'static AtomicU32, sys::Errno> {
    if let Some(word) = existing() {
        return Ok(word);
    }
    let page = sys::allocate(sys::PAGE)?;
    let give_up = |page: NonNull<u8>| {
        // SAFETY: nobody else has seen it.
        unsafe { sys::free(page, sys::PAGE) }
    };
    if let Err(error) = sys::wipe_on_fork(page, sys::PAGE) {
        give_up(page);
        return Err(error);
    }
    let ours = page.cast::<AtomicU32>();
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
