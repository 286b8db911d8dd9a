//! When to check the mappings of a process for new files, and what they were at the last check.
//!
//! The kernel does not announce mappings, so they are read: often while an image is young, seldom later.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::{process::mapped_file::FileIdentity, units::VirtualAddress};

/// How often the mappings of an old image are read.
const SELDOM: Duration = Duration::from_secs(1);

/// A file, and where it is mapped, if that matters.
pub(super) type MappedAt = (FileIdentity, Option<VirtualAddress>);

/// What a process mapped at the last check.
#[derive(Debug)]
pub(super) struct LateFiles {
    covered: Instant,
    looked: Instant,
    /// Empty until the first check, which therefore plans everything once more: files may have been mapped
    /// between the plan and the attach.
    files: HashSet<MappedAt>,
    is_due_now: bool,
}

impl LateFiles {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { covered: now, looked: now, files: HashSet::new(), is_due_now: false }
    }

    /// Makes the next check due now, with all files taken for new.
    pub(super) fn look_anew(&mut self) {
        self.files.clear();
        self.is_due_now = true;
    }

    /// Records what is mapped now. Returns whether any of it is new.
    pub(super) fn take(&mut self, files: HashSet<MappedAt>) -> bool {
        let has_new = !files.is_subset(&self.files);
        self.files = files;
        has_new
    }

    /// A check begins.
    pub(super) fn begin(&mut self) {
        self.looked = Instant::now();
        self.is_due_now = false;
    }

    /// The time between checks is an eighth of the image's age.
    pub(super) fn is_due(&self) -> bool {
        self.is_due_now || self.looked.elapsed() >= (self.covered.elapsed() / 8).min(SELDOM)
    }
}
