//! The name of a target: the path of a file, and a symbol in it. The module's commands limit both.

use std::{fmt, path::Path};

use serde::{Deserialize, Serialize};

/// A path must have fewer bytes than this.
pub const PATH_BYTES: usize = 256;
/// A symbol must have fewer bytes than this.
pub const SYMBOL_BYTES: usize = 128;

/// A name `PATH:SYMBOL` that the module's commands can contain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TargetName(String);

/// Why the module's commands cannot name a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The path has 256 bytes or more.
    #[error("the kernel module takes paths of fewer than {PATH_BYTES} bytes, and `{path}` has {}: move the \
             file, or use --engine bpf", .path.len())]
    PathTooLong {
        /// The path, as the kernel module would look it up.
        path: String,
    },
    /// The symbol has 128 bytes or more.
    #[error("the kernel module takes symbols of fewer than {SYMBOL_BYTES} bytes, and `{symbol}` has {}: use \
             --engine bpf", .symbol.len())]
    SymbolTooLong {
        /// The symbol, as in the file's symbol table.
        symbol: String,
    },
    /// A space would end the name, and a control character would end the command.
    #[error("the kernel module's commands cannot express `{text}`, which has {what}: use --engine bpf")]
    Unspeakable {
        /// The path or the symbol.
        text: String,
        /// What the commands cannot express.
        what: &'static str,
    },
}

impl TargetName {
    /// The name of a function.
    ///
    /// # Errors
    /// The module's commands cannot express the name.
    pub fn new(path: &Path, symbol: &str) -> Result<Self, NameError> {
        let unspeakable = |text: &str, what| NameError::Unspeakable { text: text.to_owned(), what };
        let Some(path) = path.to_str() else {
            return Err(unspeakable(&path.to_string_lossy(), "bytes that are not UTF-8"));
        };
        for text in [path, symbol] {
            if text.contains(' ') {
                return Err(unspeakable(text, "a space"));
            }
            // A symbol that is not valid text has replacement characters.
            if text.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
                return Err(unspeakable(&text.escape_debug().to_string(), "control characters"));
            }
        }
        if !path.starts_with('/') {
            return Err(unspeakable(path, "no / at its beginning"));
        }
        if symbol.is_empty() || symbol.contains(':') {
            // The module splits a name at its last colon.
            return Err(unspeakable(symbol, if symbol.is_empty() { "no characters" } else { "a colon" }));
        }
        if path.len() >= PATH_BYTES {
            return Err(NameError::PathTooLong { path: path.to_owned() });
        }
        if symbol.len() >= SYMBOL_BYTES {
            return Err(NameError::SymbolTooLong { symbol: symbol.to_owned() });
        }
        Ok(Self(format!("{path}:{symbol}")))
    }

    /// The path of the file: the text before the last colon.
    pub fn path(&self) -> &Path {
        Path::new(self.0.rsplit_once(':').map_or("", |(path, _)| path))
    }

    /// The name, as in commands and lists.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TargetName {
    type Error = NameError;

    /// Reads the text of a [`TargetName::as_str`]. The text may be from the record of another tool, so we
    /// check it again before we write it into commands.
    fn try_from(name: String) -> Result<Self, NameError> {
        let (path, symbol) = name.rsplit_once(':').unwrap_or((&name, ""));
        Self::new(Path::new(path), symbol)
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_bounded_as_the_module_bounds_them() {
        let path = |length: usize| format!("/{}", "p".repeat(length - 1));
        let new = |path: &str, symbol: &str| TargetName::new(Path::new(path), symbol);
        assert_eq!(new("/bin/a:b", "f").unwrap().as_str(), "/bin/a:b:f");
        assert_eq!(new("/bin/a:b", "f").unwrap().path(), Path::new("/bin/a:b"));
        assert!(new(&path(255), &"s".repeat(127)).is_ok());
        assert!(matches!(new(&path(256), "f"), Err(NameError::PathTooLong { .. })));
        assert!(matches!(new("/a", &"s".repeat(128)), Err(NameError::SymbolTooLong { .. })));
        let wrong = [
            ("/a b", "f"),
            ("/a", "f g"),
            ("/a\t", "f"),
            ("/a", "f\n"),
            ("a", "f"),
            ("/a", ""),
            ("/a", "a:b"),
        ];
        for (path, symbol) in wrong {
            assert!(matches!(new(path, symbol), Err(NameError::Unspeakable { .. })), "{path:?} {symbol:?}");
        }
    }

    #[test]
    fn names_in_notes_are_held_to_the_same() {
        let read = |text: &str| serde_json::from_str::<TargetName>(text);
        let name = TargetName::new(Path::new("/bin/a:b"), "f").unwrap();
        let written = serde_json::to_string(&name).unwrap();
        assert_eq!((written.as_str(), read(&written).unwrap()), (r#""/bin/a:b:f""#, name));
        for name in ["/a:f\n-*", "/a b:f", "a:f", "/a", "/a:", "", "/a:f\0"] {
            assert!(read(&serde_json::to_string(name).unwrap()).is_err(), "{name:?}");
        }
        assert!(read("7").is_err());
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_one_word_within_the_limits(path in ".{0,300}", symbol in ".{0,150}") {
            if let Ok(name) = TargetName::new(Path::new(&path), &symbol) {
                let text = name.as_str();
                prop_assert!(!text.chars().any(|c| c == ' ' || c.is_control()));
                let (before, after) = text.rsplit_once(':').unwrap();
                prop_assert_eq!((before, after), (path.as_str(), symbol.as_str()));
                prop_assert!(before.starts_with('/'));
                prop_assert!(before.len() < PATH_BYTES && after.len() < SYMBOL_BYTES);
            }
        }
    }
}
