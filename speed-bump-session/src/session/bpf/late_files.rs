//! When the mappings of a process are looked at for files that are new, and what they were at the last look.
//!
//! Nothing announces a mapping, so the mappings are looked at: often while an image is young, seldom later.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::process::mapped_file::FileIdentity;

/// A settled process is looked at this often.
const SELDOM: Duration = Duration::from_secs(1);

/// What a process mapped when it was looked at last.
#[derive(Debug)]
pub(super) struct LateFiles {
    covered: Instant,
    looked: Instant,
    /// Empty until the first look, which therefore plans once more: some may have been mapped between the
    /// plan and the attach.
    files: HashSet<FileIdentity>,
    is_due_now: bool,
}

impl LateFiles {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { covered: now, looked: now, files: HashSet::new(), is_due_now: false }
    }

    /// The next look is now, and takes all files for new.
    pub(super) fn look_anew(&mut self) {
        self.files.clear();
        self.is_due_now = true;
    }

    /// Takes these for what is mapped now. Whether any of them is new.
    pub(super) fn take(&mut self, files: HashSet<FileIdentity>) -> bool {
        let has_new = !files.is_subset(&self.files);
        self.files = files;
        has_new
    }

    /// A look begins.
    pub(super) fn begin(&mut self) {
        self.looked = Instant::now();
        self.is_due_now = false;
    }

    /// Looks follow each other at an eighth of the process's age.
    pub(super) fn is_due(&self) -> bool {
        self.is_due_now || self.looked.elapsed() >= (self.covered.elapsed() / 8).min(SELDOM)
    }
}
