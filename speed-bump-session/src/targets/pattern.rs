//! One shell glob, with the same meaning as in Python's `fnmatch.fnmatchcase` (CPython 3.10 and later).
//!
//! We split a pattern into pieces, and match these one after the other ([`matcher`]). No crate for globs
//! gives patterns the same meaning. globset matches bytes, so its `?` and its `[é]` stand for one byte of a
//! character. It also gives `**`, `{` and `\` other meanings. As regular expressions, thousands of patterns
//! would take a gigabyte. For many patterns, one automaton says which of them to try ([`PatternSet`]).

mod class;
mod matcher;
mod set;

use std::{borrow::Cow, fmt};

use serde::Serialize;

use self::class::Class;
pub(super) use self::set::PatternSet;

/// A shell glob that must match a whole text. A glob is case-sensitive.
///
/// `*` matches any text (also one with `/`, `.` and newlines), `?` any character, `[seq]` and `[!seq]` a
/// character in `seq` or not in `seq`. Every other character stands for itself, and so do `{`, `}`, `\`, and
/// a `[` that is never closed.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    pieces: Vec<Piece>,
}

/// The error for a pattern that is too long. No pattern that fits in a line of a targets file is too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern has {bytes} bytes, more than the {LONGEST} that one may have; write a shorter one")]
pub struct PatternError {
    bytes: usize,
}

/// The most bytes of a pattern, four times the limit for a line. The time to match a pattern grows with its
/// length.
const LONGEST: usize = 16 << 10;

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// One `*`, or several in a row.
    AnyText,
    /// `?`
    AnyChar,
    /// `[seq]` or `[!seq]`
    OneOf(Class),
    /// A run of characters that stand for themselves.
    Literal(String),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The pattern has more than 16 KiB.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > LONGEST {
            return Err(PatternError { bytes: text.len() });
        }
        Ok(Self { text: text.to_owned(), pieces: pieces(text) })
    }

    /// Whether the pattern matches the whole of `text`.
    pub fn matches(&self, text: &str) -> bool {
        matcher::matches(&self.pieces, text)
    }

    /// The pattern as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The one text that the pattern matches; `None` if it has a `*`, `?` or class.
    pub fn exact(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(literal)] => Some(literal),
            _ => None,
        }
    }

    /// The pieces of the pattern, in order. Two literals never follow each other, nor do two `*`.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The part of the pattern after its last `.`, where a `.` inside `[...]` does not count. If the pattern
    /// has no `.`, returns the whole pattern.
    pub(crate) fn last_component(&self) -> Result<Cow<'_, Self>, PatternError> {
        match last_separator(&self.text) {
            Some(dot) => Self::new(&self.text[dot + 1..]).map(Cow::Owned),
            None => Ok(Cow::Borrowed(self)),
        }
    }
}

/// Splits a pattern into its pieces, in the same way as CPython's `fnmatch.translate`.
fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (_, piece) in scan(text) {
        match (piece, pieces.last_mut()) {
            (Piece::AnyText, Some(Piece::AnyText)) => {}
            (Piece::Literal(more), Some(Piece::Literal(literal))) => literal.push_str(&more),
            (piece, _) => pieces.push(piece),
        }
    }
    pieces
}

/// The byte offset of the last `.` that stands for itself.
fn last_separator(text: &str) -> Option<usize> {
    scan(text)
        .into_iter()
        .rfind(|(_, piece)| matches!(piece, Piece::Literal(c) if c == "."))
        .map(|(at, _)| at)
}

/// The pieces one by one, each with the byte offset at which it starts. Each literal has one character.
fn scan(text: &str) -> Vec<(usize, Piece)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let at = text.len() - rest.len();
        let after = &rest[c.len_utf8()..];
        let (piece, after) = match c {
            '*' => (Piece::AnyText, after),
            '?' => (Piece::AnyChar, after),
            '[' => match Class::read(after) {
                Some((class, after)) => (Piece::OneOf(class), after),
                None => (Piece::Literal(c.to_string()), after),
            },
            c => (Piece::Literal(c.to_string()), after),
        };
        found.push((at, piece));
        rest = after;
    }
    found
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Serialize for Pattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
pub(super) mod strategies;
#[cfg(test)]
mod tests;
