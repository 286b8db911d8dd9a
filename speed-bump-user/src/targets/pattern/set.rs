//! Many patterns tried against one text at once.
//!
//! A thousand targets over fifty thousand symbols would be fifty million tries one by one. Here, patterns
//! without wildcards are looked up in a table; of the others only those are tried whose literals all occur in
//! the text, which one pass of an Aho-Corasick automaton finds out.

use std::{cmp::Reverse, collections::HashMap};

use aho_corasick::AhoCorasick;

use super::Pattern;

/// Patterns, each in it once, numbered from 0 in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(in crate::targets) struct PatternSet {
    patterns: Vec<Pattern>,
    numbers: HashMap<String, usize>,
    /// Patterns that match one text only, by that text.
    exact: HashMap<String, Vec<usize>>,
    /// Finds the literals that patterns with wildcards have; it numbers them.
    literals: Option<AhoCorasick>,
    /// The patterns that each literal is the rarest of, with all literals that they need.
    by_literal: Vec<Vec<Needs>>,
    /// Patterns that have to be tried against every text.
    always: Vec<usize>,
}

/// A pattern, and the literals without which it cannot match.
#[derive(Clone, Debug)]
struct Needs {
    pattern: usize,
    literals: Vec<usize>,
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
            let occurs = |literal: &usize| hits.binary_search(literal).is_ok();
            let near = hits.iter().filter_map(|&hit| self.by_literal.get(hit)).flatten();
            candidates
                .extend(near.filter(|needs| needs.literals.iter().all(occurs)).map(|needs| needs.pattern));
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
        // The literals, and how many patterns have each: a pattern is found by the one that the fewest share.
        let mut texts: Vec<&str> = Vec::new();
        let mut shared: Vec<usize> = Vec::new();
        let mut literal_numbers: HashMap<&str, usize> = HashMap::new();
        let mut needs: Vec<Needs> = Vec::new();
        for (pattern, globbed) in self.patterns.iter().enumerate() {
            if let Some(exact) = globbed.exact() {
                self.exact.entry(exact.to_owned()).or_default().push(pattern);
                continue;
            }
            let mut literals = Vec::new();
            for literal in globbed.literals() {
                let number = *literal_numbers.entry(literal).or_insert_with(|| {
                    texts.push(literal);
                    shared.push(0);
                    texts.len() - 1
                });
                literals.push(number);
            }
            literals.sort_unstable();
            literals.dedup();
            for &literal in &literals {
                shared[literal] += 1;
            }
            needs.push(Needs { pattern, literals });
        }
        if texts.is_empty() {
            self.always = needs.into_iter().map(|needs| needs.pattern).collect();
            return;
        }
        // Too many literals for one automaton: slower, and still right.
        self.literals = AhoCorasick::new(&texts).ok();
        self.by_literal = vec![Vec::new(); texts.len()];
        for needs in needs {
            let rarest =
                needs.literals.iter().min_by_key(|&&n| (shared[n], Reverse(texts[n].len()))).copied();
            match rarest.filter(|_| self.literals.is_some()) {
                Some(rarest) => self.by_literal[rarest].push(needs),
                None => self.always.push(needs.pattern),
            }
        }
    }
}
