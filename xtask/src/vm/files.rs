//! The files that one run adds to the guest's root: files of the host, and texts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::shell;

/// Files on their way into a guest.
#[derive(Debug)]
pub(crate) struct Files {
    staged: TempDir,
}

impl Files {
    /// No files so far. They are collected in a folder within this one.
    pub(crate) fn new(within: &Path) -> Result<Self> {
        fs::create_dir_all(within).with_context(|| format!("cannot make {}", within.display()))?;
        let staged = tempfile::Builder::new().prefix(".files-").tempdir_in(within)?;
        // Unpacking over the guest's root also sets the root's own mode.
        fs::set_permissions(staged.path(), fs::Permissions::from_mode(0o755))?;
        Ok(Self { staged })
    }

    /// A file or a folder of the host, at this absolute path of the guest.
    pub(crate) fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let to = self.place(to)?;
        shell::output(Command::new("cp").args(["--archive", "--no-target-directory"]).arg(from).arg(to))?;
        Ok(())
    }

    /// A program of the host without debugging information, at this absolute path of the guest.
    pub(crate) fn copy_stripped(&self, from: &Path, to: &Path) -> Result<()> {
        let to = self.place(to)?;
        shell::output(Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(from))?;
        Ok(())
    }

    /// A text, at this absolute path of the guest, with this mode.
    pub(crate) fn write(&self, to: &Path, text: &str, mode: u32) -> Result<()> {
        let to = self.place(to)?;
        fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// An empty folder, at this absolute path of the guest.
    pub(crate) fn folder(&self, at: &Path) -> Result<()> {
        let folder = self.place(at)?;
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))
    }

    /// Makes a disk image of them: a tar, which always fills whole sectors.
    pub(crate) fn pack(&self, image: &Path) -> Result<()> {
        shell::output(
            Command::new("tar")
                .args(["--create", "--owner=0", "--group=0", "--file"])
                .arg(image)
                .arg("--directory")
                .arg(self.staged.path())
                .arg("."),
        )?;
        Ok(())
    }

    /// Where a path of the guest is staged; the folder above it is there.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let inside = path.strip_prefix("/").with_context(|| format!("{} is not absolute", path.display()))?;
        let place = self.staged.path().join(inside);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_come_out_of_the_image_as_they_went_in() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(&folder.path().join("work")).unwrap();
        let original = folder.path().join("original");
        fs::create_dir_all(original.join("inner")).unwrap();
        fs::write(original.join("inner/file"), "copied").unwrap();
        files.copy(&original, Path::new("/a/b")).unwrap();
        files.write(Path::new("/guest/job"), "#!/bin/sh\n", 0o755).unwrap();
        files.folder(Path::new("/empty/folder")).unwrap();
        assert!(files.write(Path::new("relative"), "", 0o644).is_err());
        let image = folder.path().join("files.img");
        files.pack(&image).unwrap();

        assert_eq!(fs::metadata(&image).unwrap().len() % 512, 0);
        let out = folder.path().join("out");
        fs::create_dir(&out).unwrap();
        shell::output(Command::new("tar").arg("-xf").arg(&image).arg("-C").arg(&out)).unwrap();
        assert_eq!(fs::read_to_string(out.join("a/b/inner/file")).unwrap(), "copied");
        assert_eq!(fs::metadata(out.join("guest/job")).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(out.join("empty/folder").is_dir());
    }
}
