//! Many patterns tried against one text at once.
//!
//! A thousand targets over fifty thousand symbols would be fifty million tries one by one. Here, globset
//! sieves first: it tries all patterns at once, each relaxed to what globset and `fnmatch` agree on. What
//! passes is then matched exactly.

use std::collections::HashMap;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use super::{Pattern, Piece};

/// Patterns, each in it once, numbered from 0 in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(in crate::targets) struct PatternSet {
    patterns: Vec<Pattern>,
    numbers: HashMap<String, usize>,
    /// Lets through every text that a pattern matches, and a few others. Without one, as where there are few
    /// patterns, every pattern is tried.
    sieve: Option<GlobSet>,
}

impl PatternSet {
    /// So many patterns are found faster by the sieve than one by one.
    pub(super) const MANY: usize = 16;

    /// A set of these patterns, and the number of each in it: equal patterns share one.
    pub(in crate::targets) fn new<'p>(patterns: impl IntoIterator<Item = &'p Pattern>) -> (Self, Vec<usize>) {
        let mut set = Self::default();
        let numbers = patterns.into_iter().map(|pattern| set.number(pattern)).collect();
        if set.patterns.len() >= Self::MANY {
            // Too many, or too long, for one automaton: slower, and still right.
            set.sieve = sieve(&set.patterns).ok();
        }
        (set, numbers)
    }

    /// The numbers of the patterns that match `text`, in no particular order, each once.
    pub(in crate::targets) fn matching(&self, text: &str) -> Vec<usize> {
        let mut found = match &self.sieve {
            Some(sieve) => sieve.matches_candidate(&Candidate::new(text)),
            None => (0..self.patterns.len()).collect(),
        };
        found.retain(|&number| self.matches(number, text));
        found
    }

    /// Whether the pattern with this number matches `text`.
    pub(in crate::targets) fn matches(&self, number: usize, text: &str) -> bool {
        self.patterns.get(number).is_some_and(|pattern| pattern.matches(text))
    }

    /// The number of the pattern that is written so.
    pub(in crate::targets) fn written(&self, text: &str) -> Option<usize> {
        self.numbers.get(text).copied()
    }

    /// How many different patterns there are.
    pub(in crate::targets) fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Whether not every pattern has to be tried.
    #[cfg(test)]
    pub(super) fn has_sieve(&self) -> bool {
        self.sieve.is_some()
    }

    fn number(&mut self, pattern: &Pattern) -> usize {
        if let Some(&number) = self.numbers.get(pattern.as_str()) {
            return number;
        }
        let number = self.patterns.len();
        self.patterns.push(pattern.clone());
        self.numbers.insert(pattern.as_str().to_owned(), number);
        number
    }
}

fn sieve(patterns: &[Pattern]) -> Result<GlobSet, globset::Error> {
    let mut sieve = GlobSetBuilder::new();
    for pattern in patterns {
        // A `\` stands for itself, as any other character that `escape` leaves alone.
        sieve.add(GlobBuilder::new(&relaxed(pattern)).backslash_escape(false).build()?);
    }
    sieve.build()
}

/// A glob of globset's that matches all that the pattern matches, and more.
///
/// globset matches bytes, so that its `?` and its `[é]` stand for one byte of a character: both become `*`.
/// After a `.` at the end comes a `*` as well: globset takes the text for a path, and one that ends in `.`
/// for one without a file name, which `*.` does not match.
fn relaxed(pattern: &Pattern) -> String {
    let mut glob = String::new();
    for piece in pattern.pieces() {
        match piece {
            Piece::Literal(literal) => glob.push_str(&globset::escape(literal)),
            // No two in a row: `**` means something else there.
            _ if glob.ends_with('*') => {}
            _ => glob.push('*'),
        }
    }
    if glob.ends_with('.') {
        glob.push('*');
    }
    glob
}
