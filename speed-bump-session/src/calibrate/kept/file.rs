//! The file with the costs. We read it only if no other user can have written it, and always replace it as a
//! whole.

use std::{
    fs::{self, DirBuilder, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use crate::whole_file;

/// The name of the file in its folder.
pub(super) const NAME: &str = "costs.json";
/// The most bytes that we read: many times the usual size.
pub(super) const MAX_BYTES: u64 = 64 << 10;

/// The contents of the file; `None` if there is no file.
///
/// # Errors
/// The file cannot be read, or another user could have written it.
pub(super) fn read(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    match read_present(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn read_present(folder: &Path) -> io::Result<Vec<u8>> {
    check_folder(folder)?;
    // These flags follow no link, and do not block on a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(NAME))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(format!("{NAME} is no regular file")));
    }
    check_owner(NAME, &metadata)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("{NAME} has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Replaces the file by one with these contents. If this fails, the old file stays.
///
/// # Errors
/// We cannot write the file, or another user could change files in the folder.
pub(super) fn write(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    check_folder(folder)?;
    whole_file::write(&folder.join(NAME), 0o600, bytes, |_| Ok(()))
}

fn check_folder(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() {
        return Err(io::Error::other(format!("{} is no folder", folder.display())));
    }
    check_owner(&folder.display().to_string(), &metadata)
}

fn check_owner(what: &str, metadata: &Metadata) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own && metadata.uid() != 0 {
        return Err(io::Error::other(format!("{what} belongs to another user")));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("others than its owner may write to {what}")));
    }
    Ok(())
}
