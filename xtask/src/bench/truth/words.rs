//! The words that say how much slower a function really is: `struct words` of slow.h.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
};

use anyhow::{Context as _, Result};

/// The file, which the programs map.
#[derive(Debug)]
pub(super) struct Words(File);

impl Words {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let words = Self(file.with_context(|| format!("cannot create {}", path.display()))?);
        words.write(0, 0)?;
        words.write(1, 0)?;
        words.write(2, 0)?;
        Ok(words)
    }

    /// Selects whether requests call the function that is really slower, or the one that the tool slows.
    pub(super) fn set_real(&self, is_real: bool) -> Result<()> {
        self.write(0, u64::from(is_real))
    }

    /// Sets by how many turns the function is really slower.
    pub(super) fn set_turns(&self, turns: u64) -> Result<()> {
        self.write(1, turns)
    }

    /// Sets how many turns every request takes.
    pub(super) fn set_own_turns(&self, turns: u64) -> Result<()> {
        self.write(2, turns)
    }

    fn write(&self, word: u64, value: u64) -> Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), 8 * word).context("cannot write the words")
    }
}
