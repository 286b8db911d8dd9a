//! Problems that do not end a session. We report each once, and only up to a limit, because targets can cause
//! any number of warnings.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use crate::bounds::{NAME_BYTES, cut};

/// The most warnings that we keep and show: a user does not read more.
const KEPT: usize = 100;
/// The most further warnings that we tell apart, so that we count each once.
const COUNTED: usize = 10_000;
/// The most bytes of one warning: a sentence with the longest names of a function and a file.
const BYTES: usize = 2 * NAME_BYTES + 1_024;

/// The warnings of a session.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    kept: Vec<String>,
    /// Further warnings, as hashes with a secret key, so that processes cannot make two of them collide.
    others: HashSet<u64>,
    keys: RandomState,
}

impl Warnings {
    /// Adds a warning, unless there was the same before. If there is room to keep it, logs and returns it.
    pub(super) fn add(&mut self, text: String) -> Option<String> {
        let text = match cut(&text, BYTES) {
            (_, true) => text,
            (start, false) => format!("{start}…"),
        };
        if self.kept.contains(&text) {
            return None;
        }
        if self.kept.len() < KEPT {
            tracing::warn!("{text}");
            self.kept.push(text.clone());
            return Some(text);
        }
        if self.others.len() < COUNTED && self.others.insert(self.keys.hash_one(&text)) {
            tracing::debug!("{text}");
        }
        None
    }

    /// The warnings that we have kept, and a line about the number of others.
    pub(super) fn list(&self) -> Vec<String> {
        let mut list = self.kept.clone();
        let more = if self.others.len() < COUNTED { "" } else { "at least " };
        if !self.others.is_empty() {
            list.push(format!("{more}{} more warnings are left out: {KEPT} are kept", self.others.len()));
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_kept_once_and_the_rest_is_counted() {
        let mut warnings = Warnings::default();
        for turn in 0..3 {
            for number in 0..KEPT + 7 {
                warnings.add(format!("warning {number}"));
            }
            let list = warnings.list();
            assert_eq!(list.len(), KEPT + 1, "turn {turn}");
            assert_eq!(list.first().map(String::as_str), Some("warning 0"));
            assert_eq!(list.last().map(String::as_str), Some("7 more warnings are left out: 100 are kept"));
        }
        for number in 0..2 * COUNTED {
            warnings.add(format!("another {number}"));
        }
        assert!(warnings.list().last().is_some_and(|text| text.starts_with("at least 10000 more")));
    }

    #[test]
    fn long_ones_are_cut() {
        let mut warnings = Warnings::default();
        warnings.add("ü".repeat(BYTES));
        let list = warnings.list();
        assert!(list.iter().all(|text| text.ends_with('…') && text.len() <= BYTES + 3));
    }
}
