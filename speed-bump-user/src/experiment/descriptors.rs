//! What the descriptors of a process lead to.

use std::{ffi::CString, fs::File, io};

use rustix::fs::{Dir, readlinkat};

/// The descriptors in a process's `fd` folder, by number, with what each leads to: `socket:[4711]`
/// (proc_pid_fd(5)). Leaves out a descriptor that is closed in the meantime.
pub(crate) fn links(folder: &File) -> io::Result<impl Iterator<Item = io::Result<(i32, CString)>>> {
    let link = move |entry: Result<rustix::fs::DirEntry, rustix::io::Errno>| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => return Some(Err(errno.into())),
        };
        let number = entry.file_name().to_str().ok()?.parse().ok()?;
        let link = readlinkat(folder, entry.file_name(), Vec::new()).ok()?;
        Some(Ok((number, link)))
    };
    Ok(Dir::read_from(folder)?.filter_map(link))
}
