//! Whether enough files may be open at once for what is asked.

use anyhow::anyhow;
use rustix::process::{Resource, getrlimit};

use super::exit::{Failure, SYSTEM};

/// What a session needs: the maps and programs of the BPF object, a process with its files, and some room for
/// its children.
pub(super) const OF_SESSION: u64 = 96;
/// What looking at a process needs.
pub(super) const OF_LIST: u64 = 32;

/// That so many files may be open at once. Without, a file that cannot be opened looks like one that is not
/// there.
///
/// # Errors
/// Fewer may.
pub(super) fn need(least: u64) -> Result<(), Failure> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < least => Err(Failure::new(
            SYSTEM,
            anyhow!("{limit} files may be open at once, and {least} are needed: raise `ulimit -n`"),
        )),
        _ => Ok(()),
    }
}
