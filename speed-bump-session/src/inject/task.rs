//! Reads the /proc files of a single thread.

use std::io::Read as _;

use rustix::fs::OFlags;

use crate::{process::Process, units::Pid};

/// Reads a file of a thread's directory in /proc; `None` if that fails.
pub(super) fn file(process: &Process, thread: Pid, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = process.open_entry(&format!("task/{thread}/{name}"), OFlags::RDONLY).ok()?;
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The state of a thread: the third field of its `stat`.
pub(super) fn state(process: &Process, thread: Pid) -> Option<char> {
    let stat = file(process, thread, "stat")?;
    let after = stat.iter().rposition(|byte| *byte == b')')? + 2;
    stat.get(after).map(|byte| char::from(*byte))
}
