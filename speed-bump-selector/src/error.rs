//! Why bytes are not a selector.

use core::fmt;

use crate::layout::VERSION;

/// Why a selector is refused. No part of it is used then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorError {
    /// It does not begin like a selector, or is too short.
    NotASelector,
    /// It was compiled for another version of this crate.
    Version {
        /// The version that it has; this crate reads [`VERSION`].
        found: u32,
    },
    /// Its length differs from the one in its header, or from the sum of its parts.
    Length {
        /// The bytes that there are.
        found: usize,
    },
    /// Its number of lines is smaller than its number of targets, or it does not list each line once.
    TargetLines {
        /// The number of targets that the header claims.
        found: u32,
    },
    /// Some byte is not what the loader wrote.
    Checksum,
    /// The pattern with this number is not a valid program.
    Pattern(u32),
    /// The module with this number refers to a missing part.
    Module(u32),
    /// The line with this number refers to a missing part.
    Line(u32),
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASelector => f.write_str("these bytes are no selector"),
            Self::Version { found } => {
                write!(f, "the selector has version {found}, and version {VERSION} is read here")
            }
            Self::Length { found } => {
                write!(f, "the selector does not have the length it says: {found} bytes")
            }
            Self::TargetLines { found } => {
                write!(
                    f,
                    "the lines of the selector do not add up: {found} targets are said to be among them"
                )
            }
            Self::Checksum => f.write_str("the selector was changed after it was compiled"),
            Self::Pattern(number) => write!(f, "pattern {number} of the selector is corrupt"),
            Self::Module(number) => write!(f, "module {number} of the selector is corrupt"),
            Self::Line(number) => write!(f, "line {number} of the selector is corrupt"),
        }
    }
}

impl core::error::Error for SelectorError {}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn every_error_says_what_is_wrong() {
        for (error, words) in [
            (SelectorError::NotASelector, &["no selector"][..]),
            (SelectorError::Version { found: 77 }, &["version 77", "version 2 is read"]),
            (SelectorError::Length { found: 77 }, &["length", "77 bytes"]),
            (SelectorError::TargetLines { found: 77 }, &["do not add up", "77 targets"]),
            (SelectorError::Checksum, &["changed after it was compiled"]),
            (SelectorError::Pattern(77), &["pattern 77", "corrupt"]),
            (SelectorError::Module(77), &["module 77", "corrupt"]),
            (SelectorError::Line(77), &["line 77", "corrupt"]),
        ] {
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
}
