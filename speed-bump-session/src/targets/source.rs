//! Where targets come from.

use std::path::PathBuf;

use super::{ParsedTargets, TargetsError, file::contents};

/// Where targets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSource {
    /// A targets file; `-` is standard input.
    File(PathBuf),
    /// The text of a targets file, and its name in messages.
    Text {
        /// The name in messages.
        name: String,
        /// The text, line by line.
        text: String,
    },
    /// Two sources, one before the other: if both select a function, `first` has it.
    Before {
        /// The source whose targets come first.
        first: Box<Self>,
        /// The source whose targets select what the first ones leave.
        others: Box<Self>,
    },
}

impl TargetSource {
    /// Takes lines, as in a targets file. `name` is their name in messages.
    pub fn lines<S: AsRef<str>>(name: &str, lines: &[S]) -> Self {
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        Self::Text { name: name.to_owned(), text: lines.join("\n") }
    }

    /// Reads the targets. With `allow_empty`, a file without targets is not an error.
    ///
    /// # Errors
    /// We cannot read a file, or lines are invalid.
    pub fn read(&self, allow_empty: bool) -> Result<ParsedTargets, TargetsError> {
        match self {
            Self::File(path) => ParsedTargets::load(path, allow_empty),
            Self::Text { name, text } => ParsedTargets::parse(name, text.as_bytes(), allow_empty),
            Self::Before { first, others } => Ok(first.read(allow_empty)?.before(others.read(allow_empty)?)),
        }
    }

    /// The same source with its text in memory: standard input can be read only once, and a file may change.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn kept(self) -> Result<Self, TargetsError> {
        let Self::File(path) = &self else { return Ok(self) };
        let (name, bytes) = contents(path)?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Self::Text { name, text },
            // We leave the error to `read`, which reports the line.
            Err(_) => self,
        })
    }
}
