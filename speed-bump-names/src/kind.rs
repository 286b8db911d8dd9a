//! Kinds of functions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a target selects, and what a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TargetKind {
    /// A Python function, by file and qualified name.
    #[serde(rename = "py")]
    Python,
    /// A function in an ELF file, by symbol.
    #[serde(rename = "native")]
    Native,
    /// A USDT probe in an ELF file, by provider and name.
    #[serde(rename = "usdt")]
    Usdt,
}

impl TargetKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Python, Self::Native, Self::Usdt];

    /// The kind as lines write it: `py`, `native` or `usdt`.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Python => "py",
            Self::Native => "native",
            Self::Usdt => "usdt",
        }
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.prefix())
    }
}
