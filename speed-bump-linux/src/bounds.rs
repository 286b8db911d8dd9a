//! Bounds on what we read of a target.
//!
//! The loader runs as root, and the target's owner wrote what it reads of a process: names, tables, maps,
//! lists. Bounds that several readers share are here, each with its reason. Bounds of one format are beside
//! its reader. A reader leaves out what is beyond a bound, and says so once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

pub use speed_bump_names::NAME_BYTES;
/// Bytes of the names that one process may report in a session: 65,536 functions with 256 bytes each.
pub const NAMES_OF_PROCESS: usize = 16 << 20;
/// Bytes of the names that a session keeps of functions that appear after the attach: 100,000 functions with
/// 160 bytes each, times two.
pub const NAMES_OF_SESSION: usize = 32 << 20;
/// Bytes of one process's plan: 100,000 functions with 1,300 bytes of names, path and site each. One file may
/// take half of it.
pub const PLAN_BYTES: usize = 128 << 20;

/// Number of targets without a match for which we say why, and which name is close. For each we compare all
/// names in the process. A user does not read more of them.
pub const TARGETS_EXPLAINED: usize = 20;

/// Returns the start of a text, at most `bytes` long, and whether that is all of it.
pub fn cut(text: &str, bytes: usize) -> (&str, bool) {
    let end = text.floor_char_boundary(bytes);
    (text.get(..end).unwrap_or(text), end == text.len())
}

/// A number of bytes or entries that several users share.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Arc<AtomicUsize>,
}

/// One user's part of a [`Budget`]; dropping it gives back what it took.
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

    /// A share that takes at most `most`.
    pub fn share(&self, most: usize) -> Share {
        Share { budget: self.clone(), taken: 0, most }
    }
}

impl Share {
    /// Takes `amount` if there is room for it.
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
