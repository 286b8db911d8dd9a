//! Suggests what a target that selects nothing may have meant: the names in the process that are most similar
//! to its patterns.

use std::collections::HashMap;

use super::{
    Target, TargetKind, dotted,
    dotted::DottedNames,
    exact::plain_line,
    pattern::{Pattern, PatternError, Piece},
};

/// A function that a target may have meant.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'c> {
    /// The text that we match with [`Target::module`].
    pub module: &'c str,
    /// The full name. For a USDT probe it is `provider:name`.
    pub name: &'c str,
    /// The other names of the function.
    pub aliases: &'c [String],
}

impl<'c> From<(&'c str, &'c str)> for Candidate<'c> {
    fn from((module, name): (&'c str, &'c str)) -> Self {
        Self { module, name, aliases: &[] }
    }
}

impl Target {
    /// The candidates that are most similar to this target, the best first, at most `limit`. Each of them is
    /// a line that selects the candidate.
    ///
    /// First come names that match except for case. Next come three kinds of names: names that contain the
    /// pattern (`SelfAttention.forward` for `forward`), names that differ only in their parameters, and names
    /// that differ by a few letters, the fewest first. Last come the right names in other modules, and other
    /// names in the right module. If a candidate has several names, the most similar one counts.
    ///
    /// A hundred thousand candidates take a fraction of a second. We compare letters only up to a fixed
    /// amount of work. After that, we only check whether a candidate matches except for case, or contains the
    /// pattern.
    pub fn nearest<'c, C: Into<Candidate<'c>>>(
        &self,
        candidates: impl IntoIterator<Item = C>,
        limit: usize,
    ) -> Vec<String> {
        // We know that the patterns are valid. If they are not valid in lower case, there is nothing to
        // suggest.
        let (Ok(module), Ok(names)) = (Gauge::new(self.module.as_str()), NameGauge::new(self)) else {
            return Vec::new();
        };
        let dotted = dotted::applies(&self.module);
        let mut budget = BUDGET;
        let mut modules: HashMap<&str, Option<u32>> = HashMap::new();
        let mut best = Best { kind: self.kind, limit, found: Vec::new() };
        for candidate in candidates {
            let candidate: Candidate<'c> = candidate.into();
            let in_module = *modules
                .entry(candidate.module)
                .or_insert_with(|| module.of_module(candidate.module, dotted, &mut budget));
            let (near, name) = names.nearest(&candidate, &mut budget);
            let score = match (in_module, near) {
                (Some(module), Some(name)) => module + name,
                (None, Some(0)) if names.has_letters() => ELSEWHERE,
                (Some(0), None) if module.letters > 0 => OTHER_NAME,
                _ => continue,
            };
            best.add(score, (candidate.module, name));
        }
        best.finish()
    }
}

/// How many pairs of letters we compare for one target: about 0.1 s.
const BUDGET: usize = 1 << 25;
/// The score of the right name in another module.
const ELSEWHERE: u32 = 1_000;
/// The score of another name in the right module.
const OTHER_NAME: u32 = 2_000;
/// The score of a name that contains the pattern: the best score of a name that does not match.
const CONTAINED: u32 = 1;
/// If a pattern has fewer letters, too many names contain it. Then this is no hint.
const FEWEST_CONTAINED: usize = 3;

/// Measures how far names are from a target. A target's name can be read in several ways.
struct NameGauge {
    as_pattern: Gauge,
    /// The name as plain text. This is for native functions such as `f[abi:cxx11](int)`, whose brackets are
    /// no class of characters.
    literally: Option<Gauge>,
    /// The name before its parameters: `f(int)` is near to `f(long)`.
    without_parameters: Option<String>,
}

impl NameGauge {
    fn new(target: &Target) -> Result<Self, PatternError> {
        let name = target.name.as_str();
        let is_native = target.kind == TargetKind::Native;
        let as_pattern = match &target.provider {
            Some(provider) => Gauge::new(&format!("{provider}:{name}")),
            None => Gauge::new(name),
        };
        let is_pattern = is_native && target.name.exact().is_none();
        Ok(Self {
            as_pattern: as_pattern?,
            literally: is_pattern.then(|| Gauge::of_text(name)).transpose()?,
            without_parameters: without_parameters(name).filter(|_| is_native).map(str::to_owned),
        })
    }

    fn has_letters(&self) -> bool {
        self.as_pattern.letters > 0
    }

    /// The distance of a candidate's nearest name, and that name. If no name is near, there is no distance,
    /// and the name is the full name.
    fn nearest<'c>(&self, candidate: &Candidate<'c>, budget: &mut usize) -> (Option<u32>, &'c str) {
        let mut best: (Option<u32>, &str) = (None, candidate.name);
        for name in std::iter::once(candidate.name).chain(candidate.aliases.iter().map(String::as_str)) {
            let gauges = std::iter::once(&self.as_pattern).chain(&self.literally);
            let near = gauges.filter_map(|gauge| gauge.distance(name, budget)).min();
            if let Some(near) = near.filter(|near| best.0.is_none_or(|best| *near < best)) {
                best = (Some(near), name);
            }
            // The user needs the parameters, so we show the full name.
            let is_overload = self.without_parameters.as_deref() == Some(name);
            if is_overload && best.0.is_none_or(|best| CONTAINED < best) {
                best = (Some(CONTAINED), candidate.name);
            }
        }
        best
    }
}

/// The name before its parameters: `ns::f` for `ns::f(int) const`. `None` if the name does not end in
/// parameters or their qualifiers.
fn without_parameters(name: &str) -> Option<&str> {
    let close = name.rfind(')')?;
    let rest = name.get(close + 1..)?;
    if !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    let mut depth = 0_usize;
    let open = name.get(..=close)?.char_indices().rev().find(|(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })?;
    name.get(..open.0).filter(|before| !before.is_empty())
}

/// Measures how far texts are from one pattern, ignoring case.
struct Gauge {
    folded: Pattern,
    /// Matches texts that contain a match of `folded`.
    around: Pattern,
    steps: Vec<Step>,
    /// The number of letters in the pattern: its characters that stand for themselves.
    letters: usize,
    /// The set of these letters, from [`letter_set`].
    letter_set: u64,
}

/// A part of a pattern: one character of its text, or a wildcard.
enum Step {
    /// `*`
    AnyText,
    /// `?` or a class. One letter more or less matters little.
    AnyChar,
    Letter(char),
}

impl Gauge {
    fn new(pattern: &str) -> Result<Self, PatternError> {
        let folded = Pattern::new(&pattern.chars().map(fold).collect::<String>())?;
        let mut steps = Vec::new();
        for piece in folded.pieces() {
            match piece {
                Piece::AnyText => steps.push(Step::AnyText),
                Piece::AnyChar | Piece::OneOf(_) => steps.push(Step::AnyChar),
                Piece::Literal(literal) => steps.extend(literal.chars().map(Step::Letter)),
            }
        }
        Self::with_steps(folded, steps)
    }

    /// A gauge for plain text.
    fn of_text(text: &str) -> Result<Self, PatternError> {
        let folded: String = text.chars().map(fold).collect();
        let pattern = folded.replace('[', "[[]").replace('*', "[*]").replace('?', "[?]");
        Self::with_steps(Pattern::new(&pattern)?, folded.chars().map(Step::Letter).collect())
    }

    fn with_steps(folded: Pattern, steps: Vec<Step>) -> Result<Self, PatternError> {
        let around = Pattern::new(&format!("*{folded}*"))?;
        let letters = || {
            steps.iter().filter_map(|step| match step {
                Step::Letter(letter) => Some(*letter),
                _ => None,
            })
        };
        let (letters, letter_set) = (letters().count(), letter_set(letters()));
        Ok(Self { folded, around, steps, letters, letter_set })
    }

    /// The distance of a text from the pattern: 0 if the text matches except for case; `None` if the text is
    /// too far.
    fn distance(&self, text: &str, budget: &mut usize) -> Option<u32> {
        let folded: String = text.chars().map(fold).collect();
        if self.folded.matches(&folded) {
            return Some(0);
        }
        if self.letters >= FEWEST_CONTAINED && self.around.matches(&folded) {
            return Some(CONTAINED);
        }
        self.edits(&folded, budget).map(|edits| CONTAINED + edits)
    }

    /// [`Gauge::distance`] for a module. With `dotted`, the module's dotted names count as well.
    fn of_module(&self, path: &str, dotted: bool, budget: &mut usize) -> Option<u32> {
        let by_path = self.distance(path, budget);
        if !dotted || by_path == Some(0) {
            return by_path;
        }
        let names = DottedNames::new(path);
        names.iter().filter_map(|name| self.distance(name, budget)).chain(by_path).min()
    }

    /// How many characters we must add, drop or replace until the pattern matches; `None` if there are too
    /// many.
    fn edits(&self, text: &str, budget: &mut usize) -> Option<u32> {
        let most = u32::try_from(self.letters / 3).unwrap_or(u32::MAX).min(MAX_EDITS);
        // Each letter of the pattern that the text lacks costs an edit. For most candidates this check is
        // enough.
        if most == 0 || (self.letter_set & !letter_set(text.chars())).count_ones() > most {
            return None;
        }
        let text: Vec<char> = text.chars().collect();
        *budget = budget.checked_sub(self.steps.len() * text.len())?;

        // Levenshtein's distance. Here `*` takes any number of characters at no cost. `row[n]` is the cost of
        // matching the first n characters with the steps so far.
        let mut row: Vec<u32> = (0..).take(text.len() + 1).collect();
        for step in &self.steps {
            let mut diagonal = row.first().copied().unwrap_or_default();
            let mut left = diagonal + u32::from(!matches!(step, Step::AnyText));
            if let Some(first) = row.first_mut() {
                *first = left;
            }
            for (cost, c) in row.iter_mut().skip(1).zip(&text) {
                let above = *cost;
                *cost = match step {
                    Step::AnyText => above.min(left),
                    Step::AnyChar => diagonal.min(above + 1).min(left + 1),
                    Step::Letter(letter) => (diagonal + u32::from(letter != c)).min(above + 1).min(left + 1),
                };
                (diagonal, left) = (above, *cost);
            }
            if row.iter().all(|cost| *cost > most) {
                return None;
            }
        }
        row.last().copied().filter(|edits| *edits <= most)
    }
}

/// The most edits: names that differ by more are different names.
const MAX_EDITS: u32 = 8;

/// A bit for each letter that occurs. Some letters share a bit.
fn letter_set(letters: impl Iterator<Item = char>) -> u64 {
    letters.fold(0, |set, letter| set | 1 << (u32::from(letter) % u64::BITS))
}

/// The letter in lower case, if that is a single letter.
fn fold(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) => lower,
        _ => letter,
    }
}

/// The best candidates so far, and some more.
struct Best<'c> {
    kind: TargetKind,
    limit: usize,
    found: Vec<Scored<'c>>,
}

/// Score, length of the name, module, name. We sort candidates by these.
type Scored<'c> = (u32, usize, &'c str, &'c str);

impl<'c> Best<'c> {
    fn add(&mut self, score: u32, (module, name): (&'c str, &'c str)) {
        self.found.push((score, name.len(), module, name));
        if self.found.len() > 1_000 + 2 * self.limit {
            self.trim();
        }
    }

    fn trim(&mut self) {
        self.found.sort_unstable();
        self.found.dedup();
        self.found.truncate(self.limit);
    }

    fn finish(mut self) -> Vec<String> {
        self.trim();
        self.found.into_iter().map(|(.., module, name)| plain_line(self.kind, module, name)).collect()
    }
}

#[cfg(test)]
mod tests;
