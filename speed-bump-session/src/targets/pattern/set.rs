//! Many patterns tried against one text at once.
//!
//! A thousand targets over fifty thousand symbols would be fifty million tries one by one. Here, a text finds
//! the patterns that are this very text by a look-up, and those that have a literal which is in the text by
//! one automaton (Aho-Corasick) for all of them. Only these are matched.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::{Pattern, Piece};

/// Patterns, each in it once, numbered from 0 in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(in crate::targets) struct PatternSet {
    patterns: Vec<Pattern>,
    numbers: HashMap<String, usize>,
    /// Lets through every pattern that matches a text, and a few others. Without one, as where there are few
    /// patterns, every pattern is tried.
    sieve: Option<Sieve>,
}

impl PatternSet {
    /// So many patterns are found faster by the sieve than one by one.
    pub(super) const MANY: usize = 16;

    /// A set of these patterns, and the number of each in it: equal patterns share one.
    pub(in crate::targets) fn new<'p>(patterns: impl IntoIterator<Item = &'p Pattern>) -> (Self, Vec<usize>) {
        let mut set = Self::default();
        let numbers = patterns.into_iter().map(|pattern| set.number(pattern)).collect();
        if set.patterns.len() >= Self::MANY {
            set.sieve = Sieve::new(&set.patterns);
        }
        (set, numbers)
    }

    /// The numbers of the patterns that match `text`, in no particular order, each once.
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

/// Finds the patterns that may match a text.
#[derive(Clone, Debug)]
struct Sieve {
    /// Patterns that match one text.
    exact: HashMap<String, usize>,
    /// Finds the literals of the others.
    literals: AhoCorasick,
    /// The patterns that need each literal.
    needing: Vec<Vec<usize>>,
    /// Patterns without a literal.
    any: Vec<usize>,
}

impl Sieve {
    /// Bytes of a literal to search for. More would hardly tell patterns better apart, and a hundred
    /// thousand of them take memory for each byte.
    const TELLING: usize = 8;

    /// `None`: there are more than an automaton can number.
    fn new(patterns: &[Pattern]) -> Option<Self> {
        let (mut exact, mut any) = (HashMap::new(), Vec::new());
        let mut needing: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for (number, pattern) in patterns.iter().enumerate() {
            if let Some(text) = pattern.exact() {
                exact.insert(text.to_owned(), number);
            } else if let Some(literal) = longest_literal(pattern) {
                let bytes = literal.as_bytes();
                // What ends names tells more than what begins them.
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

    /// Each once.
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

/// The longest literal of a pattern: every text that it matches has it.
fn longest_literal(pattern: &Pattern) -> Option<&str> {
    let literals = pattern.pieces().iter().filter_map(|piece| match piece {
        Piece::Literal(literal) => Some(literal.as_str()),
        Piece::AnyText | Piece::AnyChar | Piece::OneOf(_) => None,
    });
    literals.max_by_key(|literal| literal.len())
}
