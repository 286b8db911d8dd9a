//! Where targets come from.

use std::path::PathBuf;

use super::{Reading, Targets, TargetsError};

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
        }
    }
}
