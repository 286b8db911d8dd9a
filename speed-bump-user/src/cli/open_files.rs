//! Checks that the limit on open files is high enough for a command.

use anyhow::anyhow;
use rustix::process::{Resource, getrlimit};

use super::exit::{Failure, SYSTEM};

/// Needed by a session: the maps and programs of the BPF object, a process with its files, and some room for
/// its children.
pub(super) const FOR_SESSION: u64 = 96;
/// Needed to inspect a process.
pub(super) const FOR_LIST: u64 = 32;

/// Checks that `least` files may be open at once. Otherwise a file that cannot be opened would look like one
/// that does not exist.
///
/// # Errors
/// The limit is lower.
pub(super) fn need(least: u64) -> Result<(), Failure> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < least => Err(Failure::new(
            SYSTEM,
            anyhow!("the limit on open files is {limit}, and the tool needs {least}: raise `ulimit -n`"),
        )),
        _ => Ok(()),
    }
}
