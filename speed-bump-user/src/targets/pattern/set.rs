//! Many patterns tried against one text at once.
//!
//! A thousand targets over fifty thousand symbols would be fifty million tries one by one. Here, patterns without
//! wildcards are looked up in a table; of the others only those are tried whose longest literal occurs in the text,
//! which one pass of an Aho-Corasick automaton finds out.

use std::collections::HashMap;

use aho_corasick::AhoCorasick;

use super::Pattern;

/// Patterns, each in it once, numbered from 0 in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(in crate::targets) struct PatternSet {
    patterns: Vec<Pattern>,
    numbers: HashMap<String, usize>,
    /// Patterns that match one text only, by that text.
    exact: HashMap<String, Vec<usize>>,
    /// Finds the literals of `by_literal`, in its order.
    literals: Option<AhoCorasick>,
    /// Patterns that need a literal, by that literal.
    by_literal: Vec<Vec<usize>>,
    /// Patterns that have to be tried against every text.
    always: Vec<usize>,
}

impl PatternSet {
    /// A set of these patterns, and the number of each in it: equal patterns share one.
    pub(in crate::targets) fn new<'p>(patterns: impl IntoIterator<Item = &'p Pattern>) -> (Self, Vec<usize>) {
        let mut set = Self::default();
        let numbers = patterns.into_iter().map(|pattern| set.number(pattern)).collect();
        set.index();
        (set, numbers)
    }

    /// The numbers of the patterns that match `text`, in no particular order, each once.
    pub(in crate::targets) fn matching(&self, text: &str) -> Vec<usize> {
        let mut found = self.exact.get(text).cloned().unwrap_or_default();
        let mut candidates = self.always.clone();
        if let Some(literals) = &self.literals {
            let hits = literals.find_overlapping_iter(text).map(|hit| hit.pattern().as_usize());
            let mut hits: Vec<usize> = hits.collect();
            hits.sort_unstable();
            hits.dedup();
            candidates.extend(hits.into_iter().filter_map(|hit| self.by_literal.get(hit)).flatten());
        }
        found.extend(candidates.into_iter().filter(|&number| self.matches(number, text)));
        found
    }

    /// Whether the pattern with this number matches `text`.
    pub(in crate::targets) fn matches(&self, number: usize, text: &str) -> bool {
        self.patterns.get(number).is_some_and(|pattern| pattern.matches(text))
    }

    /// How many different patterns there are.
    pub(in crate::targets) fn len(&self) -> usize {
        self.patterns.len()
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

    fn index(&mut self) {
        let mut literals: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, pattern) in self.patterns.iter().enumerate() {
            match (pattern.exact(), pattern.longest_literal()) {
                (Some(exact), _) => self.exact.entry(exact.to_owned()).or_default().push(number),
                (None, Some(literal)) => literals.entry(literal).or_default().push(number),
                (None, None) => self.always.push(number),
            }
        }
        let (texts, by_literal): (Vec<&str>, Vec<Vec<usize>>) = literals.into_iter().unzip();
        if texts.is_empty() {
            return;
        }
        match AhoCorasick::new(texts) {
            Ok(automaton) => (self.literals, self.by_literal) = (Some(automaton), by_literal),
            // Too many literals for one automaton: slower, and still right.
            Err(_) => self.always.extend(by_literal.into_iter().flatten()),
        }
    }
}
