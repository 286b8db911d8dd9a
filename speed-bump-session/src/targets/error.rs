//! The errors in a targets file, with what was expected.

use std::{fmt, io};

use super::{TargetKind, pattern::PatternError};
use crate::{
    printable::Printable,
    units::{Nanos, NanosError},
};

/// The most bytes that a line may have, without its line end.
pub const MAX_LINE_BYTES: usize = 4096;

/// The most bytes that a targets file may have: a thousand times the size of the largest sensible file.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Why we cannot use a targets file.
#[derive(Debug, thiserror::Error)]
pub enum TargetsError {
    /// The file does not exist.
    #[error("{file}: no such targets file; expected a text file with one MODULE:NAME a line")]
    Missing {
        /// The path, as the user gave it.
        file: String,
    },
    /// The path leads to a directory.
    #[error("{file}: is a directory; expected a text file with one MODULE:NAME a line")]
    Directory {
        /// The path, as the user gave it.
        file: String,
    },
    /// The system refused to read the file.
    #[error("{file}: cannot be read: {cause}; expected a readable text file with one MODULE:NAME a line")]
    Unreadable {
        /// The path, as the user gave it.
        file: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The file has more than [`MAX_FILE_BYTES`].
    #[error(
        "{file}: is larger than {MAX_FILE_BYTES} bytes; is this a targets file? One glob can select many \
         functions"
    )]
    TooLarge {
        /// The path, as the user gave it.
        file: String,
    },
    /// No line of the file is a target.
    #[error(transparent)]
    NoTarget(NoTarget),
    /// All invalid lines, up to [`LineErrors::MAX`].
    #[error("{0}")]
    Lines(LineErrors),
}

/// Describes a targets file without a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
pub struct NoTarget {
    /// The file's name.
    pub file: String,
    /// The number of lines in the file.
    pub lines: usize,
    /// The number of exclusions in the file.
    pub exclusions: usize,
}

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, lines, exclusions } = self;
        match (lines, exclusions) {
            (0, _) => write!(f, "{file}: is empty")?,
            (lines, 0) => write!(f, "{file}: has no target: only comments and blank lines (1 to {lines})")?,
            (lines, _) => {
                write!(f, "{file}: has no target: only exclusions and comments (lines 1 to {lines})")?
            }
        }
        f.write_str("; expected at least one line MODULE:NAME, or --allow-empty")
    }
}

/// The invalid lines of one file; at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct LineErrors {
    /// Sorted by line.
    pub errors: Vec<LineError>,
    /// Whether there are too many errors. If so, we did not read the rest of the file.
    pub truncated: bool,
}

impl LineErrors {
    /// The most errors that we collect before we stop.
    pub const MAX: usize = 20;

    /// The errors, a line for each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.errors.iter().map(LineError::to_string).collect();
        if self.truncated {
            lines.push(format!("stopped after {} errors; there may be more", Self::MAX));
        }
        lines
    }
}

impl fmt::Display for LineErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

/// An invalid line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file}:{line}: `{}`: {problem}", Excerpt(text))]
pub struct LineError {
    /// The file's name.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The line without its line end. We replace bytes that are not UTF-8.
    pub text: String,
    /// The fault, and what was expected.
    pub problem: LineProblem,
}

/// The fault of a line, and what was expected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LineProblem {
    /// There is no `:` where the line needs one.
    #[error("missing `:`; expected {}", shape(*kind))]
    MissingColon {
        /// The kind, if the line names one.
        kind: Option<TargetKind>,
    },
    /// There is nothing before the `:`.
    #[error("empty module pattern; expected {}, with `*` for any module", shape(*kind))]
    EmptyModule {
        /// The kind, if the line names one.
        kind: Option<TargetKind>,
    },
    /// There is nothing between the second and the third `:` of a USDT probe.
    #[error("empty provider pattern; expected {}, with `*` for any provider", shape(Some(TargetKind::Usdt)))]
    EmptyProvider,
    /// There is nothing after the last `:`.
    #[error("empty name pattern; expected {}, with `*` for any name", shape(*kind))]
    EmptyName {
        /// The kind, if the line names one.
        kind: Option<TargetKind>,
    },
    /// The word before the first `:` is not a kind, and the line has too many `:` for the word to be a
    /// module.
    #[error(
        "unknown kind `{written}`; expected py:MODULE:NAME, native:MODULE:NAME or usdt:MODULE:PROVIDER:NAME"
    )]
    UnknownKind {
        /// The word.
        written: String,
    },
    /// An unknown option.
    #[error("unknown key `{key}`; expected delay=TIME, frequency=N, caller=FUNCTION or id=NAME")]
    UnknownKey {
        /// The key, as written.
        key: String,
    },
    /// An option that the line has already given. A bare number counts as `delay=`.
    #[error("`{key}` is given twice; expected it once")]
    RepeatedKey {
        /// The key of the option, without `=`.
        key: &'static str,
    },
    /// There are words after the options.
    #[error(
        "unexpected `{word}` after an option; expected delay=TIME, frequency=N, caller=FUNCTION or id=NAME, \
         and nothing else"
    )]
    UnexpectedWord {
        /// The first of these words.
        word: String,
    },
    /// A `#` after a pattern.
    #[error("a comment behind a pattern; expected the comment on a line of its own, starting with `#`")]
    InlineComment,
    /// A delay that is not a time.
    #[error("bad delay: {0}; expected a time such as delay=10us, of at most 10s")]
    Delay(NanosError),
    /// A time without `delay=` that is not a bare number of nanoseconds.
    #[error("bad delay `{written}`; expected delay=TIME, as in delay=10us, or a bare number of nanoseconds")]
    DelayWithoutKey {
        /// The word.
        written: String,
    },
    /// A delay beyond [`Nanos::MAX_DELAY`].
    #[error("the delay {delay} is too long; expected at most {}", Nanos::MAX_DELAY)]
    DelayTooLong {
        /// The delay that the line asks for.
        delay: Nanos,
    },
    /// A frequency that is not a number of at least 1.
    #[error("bad frequency `{written}`; expected a whole number from 1: every Nth call is delayed")]
    Frequency {
        /// The text after `=`.
        written: String,
    },
    /// A caller that is not a pattern.
    #[error(
        "bad caller `{}`; expected caller=NAME or caller=MODULE:NAME, patterns without white space for \
         functions of the target's own kind",
        Excerpt(written)
    )]
    Caller {
        /// The text after `=`.
        written: String,
    },
    /// An `id=` that reports could not show.
    #[error("bad id `{}`; expected a name of printable characters", Excerpt(written))]
    Id {
        /// The text after `=`.
        written: String,
    },
    /// An earlier line has the same id.
    #[error("the id `{}` is that of line {first} already; expected another id=NAME", Excerpt(id))]
    DuplicateId {
        /// The id, as written; it may have any length.
        id: String,
        /// The earlier line.
        first: usize,
    },
    /// An exclusion with an option.
    #[error("unexpected `{word}`: an exclusion has no options; expected !MODULE:NAME")]
    OptionOnExclusion {
        /// The option.
        word: String,
    },
    /// The line has more bytes than [`MAX_LINE_BYTES`].
    #[error("the line has {bytes} bytes; expected at most {MAX_LINE_BYTES}")]
    TooLong {
        /// The length of the line in bytes.
        bytes: usize,
    },
    /// The line has bytes that are not UTF-8.
    #[error("not UTF-8: byte {byte:#04x} at byte offset {offset} of the file; expected text in UTF-8")]
    NotUtf8 {
        /// The offset of the first such byte in the file, from 0.
        offset: usize,
        /// The value of that byte.
        byte: u8,
    },
    /// A pattern that we cannot compile.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

fn shape(kind: Option<TargetKind>) -> &'static str {
    match kind {
        None => "[KIND:]MODULE:NAME [KEY=VALUE ...]",
        Some(TargetKind::Python) => "py:MODULE:NAME",
        Some(TargetKind::Native) => "native:MODULE:NAME",
        Some(TargetKind::Usdt) => "usdt:MODULE:PROVIDER:NAME",
    }
}

/// A text for a message: shortened, and without characters that a terminal would execute.
struct Excerpt<'a>(&'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX: usize = 120;
        let excerpt: String = self.0.chars().take(MAX).collect();
        let rest = if self.0.chars().nth(MAX).is_some() { "…" } else { "" };
        write!(f, "{}{rest}", Printable(excerpt))
    }
}
