//! Where targets come from.

use std::path::PathBuf;

use super::{Reading, Targets, TargetsError, file::contents};

/// See above.
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
        /// The others.
        others: Box<Self>,
    },
}

impl TargetSource {
    /// Lines as a targets file has them. `name` is what messages call them.
    pub fn lines<S: AsRef<str>>(name: &str, lines: &[S]) -> Self {
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        Self::Text { name: name.to_owned(), text: lines.join("\n") }
    }

    /// Reads them.
    ///
    /// # Errors
    /// A file that cannot be read, or lines that are wrong.
    pub fn read(&self, reading: Reading<'_>) -> Result<Targets, TargetsError> {
        match self {
            Self::File(path) => Targets::load(path, reading),
            Self::Text { name, text } => Targets::parse(name, text.as_bytes(), reading),
            Self::Before { first, others } => Ok(first.read(reading)?.before(&others.read(reading)?)),
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
