//! Matches many patterns with one text at once.
//!
//! With a thousand targets and fifty thousand symbols, trying each pattern would take fifty million tries.
//! Instead, a look-up finds the patterns that are equal to the text, and one automaton (Aho-Corasick) finds
//! the patterns with a literal that occurs in the text. Then we only match these patterns.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::{Pattern, Piece};

/// Different patterns, numbered from 0 in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(in crate::targets) struct PatternSet {
    patterns: Vec<Pattern>,
    numbers: HashMap<String, usize>,
    /// Finds all patterns that match a text, and a few others. If there are only few patterns, there is no
    /// sieve, and we try every pattern.
    sieve: Option<Sieve>,
}

impl PatternSet {
    /// From this number of patterns on, the sieve is faster than trying each.
    pub(super) const MANY: usize = 16;

    /// A set of these patterns, and the number in the set for each of them. Equal patterns have the same
    /// number.
    pub(in crate::targets) fn new<'p>(patterns: impl IntoIterator<Item = &'p Pattern>) -> (Self, Vec<usize>) {
        let mut set = Self::default();
        let numbers = patterns.into_iter().map(|pattern| set.number(pattern)).collect();
        if set.patterns.len() >= Self::MANY {
            set.sieve = Sieve::new(&set.patterns);
        }
        (set, numbers)
    }

    /// The numbers of the patterns that match `text`, in no particular order. Each number occurs once.
    pub(in crate::targets) fn matching(&self, text: &str) -> Vec<usize> {
        let mut found = match &self.sieve {
            Some(sieve) => sieve.may_match(text),
            None => (0..self.patterns.len()).collect(),
        };
        found.retain(|&number| self.matches(number, text));
        found
    }

    /// Whether the pattern with this number matches `text`.
    pub(in crate::targets) fn matches(&self, number: usize, text: &str) -> bool {
        self.patterns.get(number).is_some_and(|pattern| pattern.matches(text))
    }

    /// The pattern with this number.
    pub(in crate::targets) fn get(&self, number: usize) -> Option<&Pattern> {
        self.patterns.get(number)
    }

    /// The number of the pattern with this text.
    pub(in crate::targets) fn written(&self, text: &str) -> Option<usize> {
        self.numbers.get(text).copied()
    }

    /// The number of different patterns.
    pub(in crate::targets) fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Whether there is a sieve, so that we need not try most patterns.
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

/// Finds the patterns that may match a text.
#[derive(Clone, Debug)]
struct Sieve {
    /// Patterns without wildcards, by their text.
    exact: HashMap<String, usize>,
    /// Finds a literal of each other pattern.
    literals: AhoCorasick,
    /// The patterns with each literal.
    needing: Vec<Vec<usize>>,
    /// Patterns without a literal.
    any: Vec<usize>,
}

impl Sieve {
    /// The most bytes of a literal to search for. Longer literals hardly tell patterns better apart, and for
    /// a hundred thousand patterns each byte takes memory.
    const TELLING: usize = 8;

    /// `None` if there are more patterns than an automaton can number.
    fn new(patterns: &[Pattern]) -> Option<Self> {
        let (mut exact, mut any) = (HashMap::new(), Vec::new());
        let mut needing: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for (number, pattern) in patterns.iter().enumerate() {
            if let Some(text) = pattern.exact() {
                exact.insert(text.to_owned(), number);
            } else if let Some(literal) = longest_literal(pattern) {
                let bytes = literal.as_bytes();
                // Takes the end of the literal, because the ends of names differ more than their beginnings.
                let from = bytes.len().saturating_sub(Self::TELLING);
                needing.entry(bytes.get(from..).unwrap_or(bytes)).or_default().push(number);
            } else {
                any.push(number);
            }
        }
        let (literals, needing): (Vec<&[u8]>, Vec<Vec<usize>>) = needing.into_iter().unzip();
        let mut automaton = AhoCorasick::builder();
        let automaton = automaton.kind(Some(AhoCorasickKind::ContiguousNFA)).build(literals);
        Some(Self { exact, literals: automaton.ok()?, needing, any })
    }

    /// The patterns that may match, each once.
    fn may_match(&self, text: &str) -> Vec<usize> {
        let mut found = self.any.clone();
        found.extend(self.exact.get(text));
        let mut is_seen = vec![false; self.needing.len()];
        for literal in self.literals.find_overlapping_iter(text) {
            let literal = literal.pattern().as_usize();
            let is_new = is_seen.get_mut(literal).is_some_and(|seen| !std::mem::replace(seen, true));
            if is_new {
                found.extend(self.needing.get(literal).into_iter().flatten());
            }
        }
        found
    }
}

/// The longest literal of a pattern. Every text that the pattern matches contains this literal.
fn longest_literal(pattern: &Pattern) -> Option<&str> {
    let literals = pattern.pieces().iter().filter_map(|piece| match piece {
        Piece::Literal(literal) => Some(literal.as_str()),
        Piece::AnyText | Piece::AnyChar | Piece::OneOf(_) => None,
    });
    literals.max_by_key(|literal| literal.len())
}
