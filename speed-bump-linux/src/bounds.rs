//! How much is taken from a target at most.
//!
//! The loader runs as root, and what it reads of a process was written by whoever owns that: names, tables,
//! maps, lists. Bounds that several readers share are here, each with its reason; those of one format are
//! beside its reader. What is beyond a bound is left out and told, once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

pub use speed_bump_names::NAME_BYTES;
/// Bytes of the names that one process tells while a session runs: 65,536 functions with 256 bytes each.
pub const NAMES_OF_PROCESS: usize = 16 << 20;
/// Bytes of the names that a session keeps of functions that appear after the attach: 100,000 functions with
/// 160 bytes each, and as much again.
pub const NAMES_OF_SESSION: usize = 32 << 20;
/// Bytes of what is planned for one process: 100,000 functions with 1,300 bytes of names, path and site each.
/// One file has half.
pub const PLAN_BYTES: usize = 128 << 20;

/// Targets that select nothing of which it is told why, and what they may have meant: for each, all names in
/// the process are compared. Nobody reads more of it.
pub const TARGETS_EXPLAINED: usize = 20;

/// The start of a text, at most so many bytes of it, and whether that is all.
pub fn cut(text: &str, bytes: usize) -> (&str, bool) {
    let end = text.floor_char_boundary(bytes);
    (text.get(..end).unwrap_or(text), end == text.len())
}

/// Room that several share.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Arc<AtomicUsize>,
}

/// What one of them has taken of it; given back when this is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    taken: usize,
    most: usize,
}

impl Budget {
    /// Room for so much.
    pub fn new(room: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(room)) }
    }

    /// A share that takes at most so much.
    pub fn share(&self, most: usize) -> Share {
        Share { budget: self.clone(), taken: 0, most }
    }
}

impl Share {
    /// Takes as much, if there is room for it.
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
