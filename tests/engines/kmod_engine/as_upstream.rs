//! The module in kmod/ in the part of upstream's, which is not in this tree.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::NamedTempFile;

use crate::kmod::loaded::FOLDER;

/// While it lives, the module passes for upstream's: its `stats` says what that one's says.
pub(crate) struct AsUpstream {
    stats: PathBuf,
    _cover: NamedTempFile,
}

impl AsUpstream {
    pub(crate) fn new() -> Self {
        let (stats, cover) = (Path::new(FOLDER).join("stats"), NamedTempFile::new().unwrap());
        fs::write(&cover, "enabled: 0\ntargets: 0\ntotal_hits: 0\ntotal_delay_ns: 0\n").unwrap();
        let mounted = Command::new("mount").arg("--bind").arg(cover.path()).arg(&stats).status().unwrap();
        assert!(mounted.success(), "{mounted}");
        Self { stats, _cover: cover }
    }
}

impl Drop for AsUpstream {
    fn drop(&mut self) {
        // Unloading the module would take it along.
        let _ = Command::new("umount").arg(&self.stats).status();
    }
}
