//! Restrictions on the functions of a profile, like those of `pstats`: a count, a share, or an expression.

use std::str::FromStr;

use regex_automata::meta::Regex;

use super::{Entry, FunctionKey};

/// Which functions of a profile are printed: a restriction, as in `print_stats` of `pstats`.
#[derive(Clone, Debug)]
pub enum Limit {
    /// This many functions, from the first one on.
    Count(usize),
    /// This share of all functions, from the first one on.
    Share(f64),
    /// The functions whose standard name the expression matches.
    Matching(Box<Regex>, String),
}

/// Why a text is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a count (20), a share (0.1), or a regular expression: {error}")]
pub struct LimitError {
    text: String,
    error: String,
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        if let Ok(count) = text.parse::<usize>() {
            return Ok(Self::Count(count));
        }
        let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        if let Some(share) = text.parse::<f64>().ok().filter(|_| is_number) {
            let error = || LimitError { text: text.to_owned(), error: "a share must be below 1".to_owned() };
            return if (0.0..1.0).contains(&share) { Ok(Self::Share(share)) } else { Err(error()) };
        }
        match Regex::new(text) {
            Ok(regex) => Ok(Self::Matching(Box::new(regex), text.to_owned())),
            Err(error) => Err(LimitError { text: text.to_owned(), error: error.to_string() }),
        }
    }
}

impl Limit {
    /// Removes the functions that the limit excludes.
    pub(super) fn apply(&self, functions: &mut Vec<(FunctionKey, Entry)>) {
        match self {
            Self::Count(count) => functions.truncate(*count),
            Self::Share(share) => functions.truncate((functions.len() as f64 * share + 0.5) as usize),
            Self::Matching(regex, _) => functions.retain(|(key, _)| regex.is_match(&key.standard_name())),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Share(share) => write!(f, "{share}"),
            Self::Matching(_, text) => write!(f, "'{text}'"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn counts_shares_and_expressions_are_limits() {
        let all = || {
            let key = |line| FunctionKey { file: "x.py".into(), line, name: format!("f{line}") };
            (1..=10).map(|line| (key(line), Entry::default())).collect::<Vec<_>>()
        };
        let left = |text: &str| {
            let mut functions = all();
            text.parse::<Limit>().unwrap().apply(&mut functions);
            functions.len()
        };
        assert_eq!(["3", "20", "0.25", "0.0", r"\(f1", "x.py:[23]"].map(left), [3, 10, 3, 0, 2, 2]);
        for text in ["(", "1.0", "-1", "1.5"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
        assert!(matches!("nan".parse::<Limit>(), Ok(Limit::Matching(..))));
    }
}
