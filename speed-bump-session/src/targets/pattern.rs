//! One shell glob, with the meaning that Python's `fnmatch.fnmatchcase` gives it (CPython 3.10 and later).
//!
//! A pattern is read into pieces here, which are matched one after the other ([`matcher`]). No crate for
//! globs means the same by them: globset matches bytes, so that its `?` and its `[é]` stand for one byte of a
//! character, and its `**`, `{` and `\` mean something else. As regular expressions, thousands of patterns
//! would take a gigabyte. Where there are many, one automaton says which to try ([`PatternSet`]).

mod class;
mod matcher;
mod set;

use std::{borrow::Cow, fmt};

use serde::Serialize;

use self::class::Class;
pub(super) use self::set::PatternSet;

/// A shell glob that has to match a whole text, case-sensitively.
///
/// `*` is any text (also with `/`, `.` and newlines in it), `?` any character, `[seq]` and `[!seq]` a
/// character in or not in `seq`. Every other character stands for itself: also `{`, `}`, `\`, and a `[` that
/// is never closed.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    pieces: Vec<Piece>,
}

/// Why a pattern was refused. No pattern that fits in a line of a targets file gets here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern has {bytes} bytes, more than the {LONGEST} that one may have; write a shorter one")]
pub struct PatternError {
    bytes: usize,
}

/// Bytes of a pattern: four times those of a line. What it takes to match it grows with its length.
const LONGEST: usize = 16 << 10;

/// What a pattern is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// `*`, any number of them in a row.
    AnyText,
    /// `?`
    AnyChar,
    /// `[seq]` or `[!seq]`
    OneOf(Class),
    /// Characters that stand for themselves: as many as there are in a row.
    Literal(String),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It has more than 16 KiB.
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

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The one text that the pattern matches, when it has no `*`, `?` or class.
    pub fn exact(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(literal)] => Some(literal),
            _ => None,
        }
    }

    /// What the pattern is made of, in order; no two literals, and no two `*`, in a row.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// What follows the last `.` of the pattern, where a `.` inside `[...]` does not count; the whole pattern
    /// when it has none.
    pub(crate) fn last_component(&self) -> Result<Cow<'_, Self>, PatternError> {
        match last_separator(&self.text) {
            Some(dot) => Self::new(&self.text[dot + 1..]).map(Cow::Owned),
            None => Ok(Cow::Borrowed(self)),
        }
    }
}

/// Splits a pattern into its pieces; `CPython`'s `fnmatch.translate` is the reference.
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

/// The pieces one by one, a literal for each character, with the byte offsets at which they start.
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
