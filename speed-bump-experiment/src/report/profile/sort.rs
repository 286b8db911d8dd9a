//! The order of a profile, with the sort keys of `pstats`.

use std::{cmp::Ordering, str::FromStr};

use super::{Entry, FunctionKey};

/// What functions are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// All calls, the most first.
    Calls,
    /// Primitive calls, the most first.
    PrimitiveCalls,
    /// Cumulative time, the longest first.
    Cumulative,
    /// Own time, the longest first.
    Time,
    /// Path of the file, in the order of the alphabet.
    File,
    /// Number of the line, the lowest first.
    Line,
    /// Name of the function, in the order of the alphabet.
    Name,
    /// Name, file and line.
    NameFileLine,
    /// The text of the last column.
    StandardName,
}

/// All words that `pstats.Stats.sort_stats` accepts.
const WORDS: [(&str, SortKey); 13] = [
    ("calls", SortKey::Calls),
    ("ncalls", SortKey::Calls),
    ("cumtime", SortKey::Cumulative),
    ("cumulative", SortKey::Cumulative),
    ("filename", SortKey::File),
    ("file", SortKey::File),
    ("line", SortKey::Line),
    ("module", SortKey::File),
    ("name", SortKey::Name),
    ("nfl", SortKey::NameFileLine),
    ("pcalls", SortKey::PrimitiveCalls),
    ("stdname", SortKey::StandardName),
    ("time", SortKey::Time),
];
/// Another word for own time, used in its table.
const TOTAL: (&str, SortKey) = ("tottime", SortKey::Time);

/// Why a word is not a sort key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SortError {
    /// It is not a sort key or a prefix of one.
    #[error(
        "`{0}` is not a sort key: use calls, cumulative, time, name, file, line, module, nfl, pcalls or \
         stdname"
    )]
    Unknown(String),
    /// It is a prefix of several.
    #[error("`{0}` may be {1}")]
    Ambiguous(String, String),
}

impl FromStr for SortKey {
    type Err = SortError;

    fn from_str(word: &str) -> Result<Self, SortError> {
        let all = || WORDS.into_iter().chain([TOTAL]);
        if let Some((_, key)) = all().find(|(known, _)| *known == word) {
            return Ok(key);
        }
        let begun: Vec<(&str, Self)> = all().filter(|(known, _)| known.starts_with(word)).collect();
        match begun.as_slice() {
            [] => Err(SortError::Unknown(word.to_owned())),
            _ if word.is_empty() => Err(SortError::Unknown(word.to_owned())),
            [(_, first), rest @ ..] if rest.iter().all(|(_, key)| key == first) => Ok(*first),
            several => {
                let words: Vec<&str> = several.iter().map(|(known, _)| *known).collect();
                Err(SortError::Ambiguous(word.to_owned(), words.join(" or ")))
            }
        }
    }
}

impl SortKey {
    /// Its name in the header.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Calls => "call count",
            Self::PrimitiveCalls => "primitive call count",
            Self::Cumulative => "cumulative time",
            Self::Time => "internal time",
            Self::File => "file name",
            Self::Line => "line number",
            Self::Name => "function name",
            Self::NameFileLine => "name/file/line",
            Self::StandardName => "standard name",
        }
    }

    fn compare(self, a: &(FunctionKey, Entry), b: &(FunctionKey, Entry)) -> Ordering {
        let ((a_key, a), (b_key, b)) = (a, b);
        match self {
            Self::Calls => b.calls.cmp(&a.calls),
            Self::PrimitiveCalls => b.primitive_calls.cmp(&a.primitive_calls),
            Self::Cumulative => b.cumulative_ns.cmp(&a.cumulative_ns),
            Self::Time => b.own_ns.cmp(&a.own_ns),
            Self::File => a_key.file.cmp(&b_key.file),
            Self::Line => a_key.line.cmp(&b_key.line),
            Self::Name => a_key.name.cmp(&b_key.name),
            Self::NameFileLine => {
                (&a_key.name, &a_key.file, a_key.line).cmp(&(&b_key.name, &b_key.file, b_key.line))
            }
            Self::StandardName => a_key.standard_name().cmp(&b_key.standard_name()),
        }
    }
}

/// Sorts by the first key, equal functions by the next, and so on. The sort is stable.
pub(super) fn sort(functions: &mut [(FunctionKey, Entry)], keys: &[SortKey]) {
    functions.sort_by(|a, b| {
        keys.iter().map(|key| key.compare(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_unambiguous_prefixes() {
        let parsed = |word: &str| word.parse::<SortKey>();
        assert_eq!(parsed("cumulative"), Ok(SortKey::Cumulative));
        assert_eq!(parsed("cu"), Ok(SortKey::Cumulative));
        assert_eq!(parsed("t"), Ok(SortKey::Time));
        assert_eq!(parsed("mod"), Ok(SortKey::File));
        assert_eq!(parsed("nc"), Ok(SortKey::Calls));
        assert_eq!(
            parsed("c"),
            Err(SortError::Ambiguous("c".into(), "calls or cumtime or cumulative".into()))
        );
        assert!(parsed("").is_err() && parsed("speed").is_err());
    }
}
