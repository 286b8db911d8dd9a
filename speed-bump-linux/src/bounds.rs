//! Bounds on what we read from a target.
//!
//! The loader runs as root, and the target's owner controls what the loader reads from a process: names,
//! tables, maps, lists. This file has the bounds that several readers share, each with its reason. The bound
//! of a single format is beside its reader. A reader leaves out what is beyond a bound, and reports that
//! once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

pub use speed_bump_names::NAME_BYTES;
/// The most bytes of names that one process may report in a session: 65,536 functions with 256 bytes each.
pub const NAMES_OF_PROCESS: usize = 16 << 20;
/// The most bytes of names that a session stores for functions that appear after the attach: 100,000
/// functions with 160 bytes each, times two.
pub const NAMES_OF_SESSION: usize = 32 << 20;
/// The most bytes of one process's plan: 100,000 functions with 1,300 bytes for names, path and site each.
/// One file may take half of it.
pub const PLAN_BYTES: usize = 128 << 20;

/// The most targets that select nothing for which we explain why, with similar names. For each target, we
/// compare it with all names in the process. A user does not read more.
pub const TARGETS_EXPLAINED: usize = 20;

/// The start of a text, at most `bytes` long. Also returns whether this is the whole text.
pub fn cut(text: &str, bytes: usize) -> (&str, bool) {
    let end = text.floor_char_boundary(bytes);
    (text.get(..end).unwrap_or(text), end == text.len())
}

/// Room for bytes or entries that several users share.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Arc<AtomicUsize>,
}

/// One user's part of a [`Budget`]. Dropping this gives back the room that was taken.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    taken: usize,
    most: usize,
}

impl Budget {
    /// A budget of `room`.
    pub fn new(room: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(room)) }
    }

    /// A share that can take at most `most`.
    pub fn share(&self, most: usize) -> Share {
        Share { budget: self.clone(), taken: 0, most }
    }
}

impl Share {
    /// Takes `amount`, if there is room for it.
    #[must_use]
    pub fn take(&mut self, amount: usize) -> bool {
        if self.taken.saturating_add(amount) > self.most {
            return false;
        }
        let less = |left: usize| left.checked_sub(amount);
        let taken = self.budget.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        self.taken += if taken { amount } else { 0 };
        taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_ends_at_its_own_bound_and_at_that_of_all() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (budget.share(7), budget.share(7));
        assert!(one.take(7) && !one.take(1));
        assert!(other.take(3) && !other.take(1));
        drop(one);
        assert!(other.take(4) && !other.take(1));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("naïve", 3), ("na", false));
        assert_eq!(cut("naïve", 4), ("naï", false));
        assert_eq!(cut("naïve", 6), ("naïve", true));
        assert_eq!(cut("", 0), ("", true));
    }
}
