//! A file that a process maps. We keep it open.
//!
//! Someone may rename or replace a path, or we may be unable to reach it from our mount namespace, and the
//! process that maps the file may end. The descriptor always means the file that we inspected, and we pass
//! this descriptor to the kernel.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use crate::process::{MappedFile, OpenFile, mapped_file::FileIdentity};

/// The identity of a file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// A file for probes.
#[derive(Debug)]
pub struct ProbeFile {
    file: File,
    id: FileId,
    identity: FileIdentity,
    path: PathBuf,
    elsewhere: Option<PathBuf>,
    attach_path: CString,
}

impl ProbeFile {
    /// Takes an open file, and the path by which the process knows the file. The number that mappings show
    /// for the file must be the one that `fstat` returns.
    ///
    /// # Errors
    /// The error of `fstat`.
    pub fn new(file: File, path: PathBuf) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let id = FileId { device: metadata.dev(), inode: metadata.ino() };
        let identity = FileIdentity::by_stat(&metadata);
        let attach_path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        Ok(Self { file, id, identity, path, elsewhere: None, attach_path })
    }

    /// Takes a file that a process maps.
    ///
    /// # Errors
    /// The error of `fstat`.
    pub fn mapped(open: &OpenFile, mapped: &MappedFile) -> io::Result<Self> {
        let file = Self::new(open.file().try_clone()?, mapped.path_in_process.clone())?;
        Ok(Self { identity: mapped.identity, elsewhere: open.elsewhere().map(Path::to_owned), ..file })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The device and inode of the file. They are the same for all paths to the file.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The number of the file in the process's mappings. Overlayfs may show the same number for its own file
    /// and for the lower file.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Our own path to the file, if the process's path leads to another file.
    pub fn elsewhere(&self) -> Option<&Path> {
        self.elsewhere.as_deref()
    }

    /// The path by which the process knows the file. This path is for reports and patterns, not for opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path that we give to the kernel: the path of our own descriptor.
    pub fn attach_path(&self) -> &CStr {
        &self.attach_path
    }
}
