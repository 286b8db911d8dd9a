//! Decides when to check the mappings of a process for new files. Stores the files of the last check.
//!
//! The kernel does not announce mappings. So we read them: often while an image is young, and seldom later.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::{process::mapped_file::FileIdentity, units::VirtualAddress};

/// The longest time between two checks.
const SELDOM: Duration = Duration::from_secs(1);

/// A file, and where it is mapped, if that matters.
pub(super) type MappedAt = (FileIdentity, Option<VirtualAddress>);

/// The files that a process mapped at the last check.
#[derive(Debug)]
pub(super) struct LateFiles {
    covered: Instant,
    looked: Instant,
    /// Empty until the first check. That check then plans everything once more, because the process may have
    /// mapped files between the plan and the attach.
    files: HashSet<MappedAt>,
    is_due_now: bool,
}

impl LateFiles {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { covered: now, looked: now, files: HashSet::new(), is_due_now: false }
    }

    /// Makes a check due now. In this check all files count as new.
    pub(super) fn look_anew(&mut self) {
        self.files.clear();
        self.is_due_now = true;
    }

    /// Records the files that the process maps now. Returns whether any of them is new.
    pub(super) fn take(&mut self, files: HashSet<MappedAt>) -> bool {
        let has_new = !files.is_subset(&self.files);
        self.files = files;
        has_new
    }

    /// Records that a check begins.
    pub(super) fn begin(&mut self) {
        self.looked = Instant::now();
        self.is_due_now = false;
    }

    /// Whether a check is due. The time between checks is an eighth of the image's age.
    pub(super) fn is_due(&self) -> bool {
        self.is_due_now || self.looked.elapsed() >= (self.covered.elapsed() / 8).min(SELDOM)
    }
}
