//! Where targets come from.

use std::path::PathBuf;

use super::{ParsedTargets, TargetsError, file::contents};

/// Where the lines of targets come from: a file, arguments, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSource {
    /// A targets file; `-` is standard input.
    File(PathBuf),
    /// The text of a targets file, and how messages name it.
    Text {
        /// What it is called.
        name: String,
        /// Its lines.
        text: String,
    },
    /// Targets before others: of a function that both select, they are the ones.
    Before {
        /// Those.
        first: Box<Self>,
        /// Targets that have what the first ones leave.
        others: Box<Self>,
    },
}

impl TargetSource {
    /// Lines as a targets file has them. `name` is what messages call them.
    pub fn lines<S: AsRef<str>>(name: &str, lines: &[S]) -> Self {
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        Self::Text { name: name.to_owned(), text: lines.join("\n") }
    }

    /// Reads them. Whether there may be none is `allow_empty`.
    ///
    /// # Errors
    /// A file that cannot be read, or lines that are wrong.
    pub fn read(&self, allow_empty: bool) -> Result<ParsedTargets, TargetsError> {
        match self {
            Self::File(path) => ParsedTargets::load(path, allow_empty),
            Self::Text { name, text } => ParsedTargets::parse(name, text.as_bytes(), allow_empty),
            Self::Before { first, others } => Ok(first.read(allow_empty)?.before(others.read(allow_empty)?)),
        }
    }

    /// The same, where it is not read again: standard input is there once, and a file may change.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn kept(self) -> Result<Self, TargetsError> {
        let Self::File(path) = &self else { return Ok(self) };
        let (name, bytes) = contents(path)?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Self::Text { name, text },
            // Which line that is, reading says.
            Err(_) => self,
        })
    }
}
