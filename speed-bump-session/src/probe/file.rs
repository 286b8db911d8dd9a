//! A file that a process maps, kept open.
//!
//! Paths may be renamed, replaced or unreachable from our mount namespace, and the process that maps the file
//! may end. The descriptor stays the one file that we inspected, and we pass that to the kernel.

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
    /// Takes an open file that mappings number like `fstat`, and the path by which the process knows it.
    ///
    /// # Errors
    /// What `fstat` returns.
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
    /// What `fstat` returns.
    pub fn mapped(open: &OpenFile, mapped: &MappedFile) -> io::Result<Self> {
        let file = Self::new(open.file().try_clone()?, mapped.path_in_process.clone())?;
        Ok(Self { identity: mapped.identity, elsewhere: open.elsewhere().map(Path::to_owned), ..file })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Device and inode: two paths to one file have the same.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Its number in the process's mappings: overlayfs may give the file that it shows and the file below the
    /// same number.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Our own path to it, if the process's path leads to another file.
    pub fn elsewhere(&self) -> Option<&Path> {
        self.elsewhere.as_deref()
    }

    /// The path by which the process knows it: for people and patterns, not for opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path for the kernel: our own descriptor.
    pub fn attach_path(&self) -> &CStr {
        &self.attach_path
    }
}
