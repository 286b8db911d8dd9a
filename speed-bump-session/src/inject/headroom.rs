//! Checks whether there is memory for the helper. At the limit of a control group the kernel kills processes
//! in the group, and the helper must not use up the last memory of a service.

use std::{fs, path::Path};

use super::InjectError;
use crate::{
    process::{
        Process,
        control_group::{ControlGroup, Hierarchy},
    },
    units::Bytes,
};

/// The memory that loading takes in any process: the pages of the helper, the stack of its thread, page
/// tables, the control block, and memory that the C library allocates. We measured 250 to 400 KiB with
/// CPython 3.8 to 3.13. The constant is larger, because the kernel charges in units of 256 KiB.
const FIXED: Bytes = Bytes(1 << 20);
/// Before 3.12, the helper makes Python list all its objects to find functions. The list takes 8 bytes for
/// each object, and an eighth more while it grows. An object that the garbage collector knows takes at least
/// 64 bytes. So the list takes at most a seventh of the memory. The records of functions take less than the
/// functions.
const PART_OF_MEMORY: u64 = 7;
/// The most that we expect this list to take: 3.5 million objects.
const LARGEST_PART: Bytes = Bytes(32 << 20);

/// Refuses a process whose control groups have too little memory left.
pub(super) fn check(process: &Process, for_python: bool) -> Result<(), InjectError> {
    let anonymous = process.status()?.anonymous;
    let needed = needed(anonymous, for_python);
    for group in process.control_groups()? {
        for folder in group.levels() {
            let Some(left) = Left::read(&group, &folder) else { continue };
            if left.bytes < needed {
                return Err(InjectError::NoMemory {
                    pid: process.pid(),
                    folder,
                    left: left.bytes,
                    limit: left.limit,
                    needed,
                });
            }
        }
    }
    Ok(())
}

fn needed(anonymous: Bytes, for_python: bool) -> Bytes {
    let part = if for_python { (anonymous.0 / PART_OF_MEMORY).min(LARGEST_PART.0) } else { 0 };
    Bytes(FIXED.0 + part)
}

/// The memory that a control group has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    limit: Bytes,
    bytes: Bytes,
}

/// The names of the files from which we read these numbers of a group.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// The line of `memory.stat` with the pages that the kernel drops first: file pages that nobody has used
    /// recently.
    dropped: &'static str,
}

/// Documentation/admin-guide/cgroup-v2.rst.
const UNIFIED: [Files; 1] =
    [Files { limit: "memory.max", usage: "memory.current", dropped: "inactive_file" }];
/// Documentation/admin-guide/cgroup-v1/memory.rst. The second limit is for memory and swap together.
const LEGACY: [Files; 2] = [
    Files { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", dropped: "total_inactive_file" },
    Files {
        limit: "memory.memsw.limit_in_bytes",
        usage: "memory.memsw.usage_in_bytes",
        dropped: "total_inactive_file",
    },
];

impl Left {
    /// Reads the files of a group; `None` if the group has no limit.
    fn read(group: &ControlGroup, folder: &Path) -> Option<Self> {
        let files: &[Files] = match group.hierarchy {
            Hierarchy::Unified => &UNIFIED,
            Hierarchy::Legacy(_) if group.has_legacy("memory") => &LEGACY,
            Hierarchy::Legacy(_) => &[],
        };
        files.iter().filter_map(|files| Self::by(files, folder)).min_by_key(|left| left.bytes)
    }

    fn by(files: &Files, folder: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        // If the group has no limit, the file contains `max`, or in version 1 an impossibly large number.
        let limit: u64 = read(files.limit)?.trim().parse().ok()?;
        let usage: u64 = read(files.usage)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let dropped: u64 = stat
            .lines()
            .find_map(|line| line.strip_prefix(files.dropped)?.strip_prefix(' ')?.parse().ok())
            .unwrap_or(0);
        let bytes = limit.saturating_sub(usage.saturating_sub(dropped));
        Some(Self { limit: Bytes(limit), bytes: Bytes(bytes) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn what_is_left_is_the_limit_less_what_cannot_be_dropped() {
        let left = |files: &[Files], texts: &[(&str, &str)]| -> Vec<_> {
            let folder = folder(texts);
            files.iter().map(|files| Left::by(files, folder.path())).collect()
        };
        let stat = "anon 5\nfile 90\ninactive_file 40\ntotal_inactive_file 30\n";
        let unified =
            |max| left(&UNIFIED, &[("memory.max", max), ("memory.current", "95\n"), ("memory.stat", stat)]);
        assert_eq!(unified("100\n"), [Some(Left { limit: Bytes(100), bytes: Bytes(45) })]);
        assert_eq!(unified("50\n"), [Some(Left { limit: Bytes(50), bytes: Bytes(0) })]);
        assert_eq!(unified("max\n"), [None]);
        assert_eq!(left(&UNIFIED, &[]), [None]);
        let legacy = [
            ("memory.limit_in_bytes", "100\n"),
            ("memory.usage_in_bytes", "90\n"),
            ("memory.memsw.limit_in_bytes", "110\n"),
            ("memory.memsw.usage_in_bytes", "120\n"),
            ("memory.stat", stat),
        ];
        assert_eq!(
            left(&LEGACY, &legacy),
            [
                Some(Left { limit: Bytes(100), bytes: Bytes(40) }),
                Some(Left { limit: Bytes(110), bytes: Bytes(20) }),
            ]
        );
    }

    #[test]
    fn a_large_python_needs_more() {
        assert_eq!(needed(Bytes(70 << 20), false), Bytes(1 << 20));
        assert_eq!(needed(Bytes(70 << 20), true), Bytes(11 << 20));
        assert_eq!(needed(Bytes(70 << 30), true), Bytes(33 << 20));
    }
}
