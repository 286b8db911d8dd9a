//! Opens files below the root directory of another process. It follows no link out of that directory, and
//! opens only regular files that hold data.
//!
//! The process may be in a container, and controls everything below its root. A symbolic link to
//! `/etc/shadow` there must not make us, as root, read our own `/etc/shadow`. The process may also mount a
//! kernel file for root alone over another file. We must not read that file either (see [`pseudo_files`]).

use std::{
    ffi::{CString, OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat},
    io::Errno,
};

use super::{answers, pseudo_files};

/// The kernel's own limit on links in a path (`MAXSYMLINKS`).
const LINK_LIMIT: usize = 40;

/// Whether the last component of a path may be a symbolic link. A link that we follow stays below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// We follow the link.
    Follow,
    /// The link is an error (`ELOOP`).
    Refuse,
}

/// Why we could not open a file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not regular: it is of this kind.
    #[error("not a regular file but a {0}")]
    Special(&'static str),
    /// The kernel makes up the contents of this file when we read it. The value names the file system.
    #[error(
        "a file of {0}, which the kernel makes up when it is read, and not one that holds data; it was not \
         read"
    )]
    MadeUp(&'static str),
    /// The system's error.
    #[error(transparent)]
    System(io::Error),
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

impl From<OpenError> for io::Error {
    /// Returns `InvalidInput` for all files but regular files that hold data.
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Special(_) | OpenError::MadeUp(_) => {
                Self::new(io::ErrorKind::InvalidInput, error.to_string())
            }
            OpenError::System(error) => error,
        }
    }
}

/// Finds a file without opening it (`O_PATH`). This follows the path and all links as if `root` were `/`.
///
/// # Errors
/// The system's error; `ELOOP` if the last component is a link and `last` refuses links.
pub fn find_below(root: BorrowedFd<'_>, path: &Path, last: LastLink) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | last.flags();
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN: someone renamed or mounted something meanwhile, and the kernel cannot vouch for the result.
    for _ in 0..16 {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            // A seccomp filter that is older than the call (Linux 5.6) returns one of these.
            Err(Errno::NOSYS | Errno::PERM) => return walk(root, path, last),
            found => return found.and_then(|found| last.check(found)),
        }
    }
    walk(root, path, last)
}

/// Opens a found file for reading, if the file is regular. If we open a device, something may happen at once:
/// for example, a watchdog starts. If we open a pipe, we wait. If we find a file with `O_PATH`, neither
/// happens.
///
/// # Errors
/// [`OpenError::Special`] for a file that is not regular, [`OpenError::MadeUp`] for a file that holds no
/// data, and `TimedOut` for a file whose file system does not answer.
pub fn open_regular(found: BorrowedFd<'_>) -> Result<File, OpenError> {
    answers::check(found).map_err(OpenError::System)?;
    let kind = match FileType::from_raw_mode(fstat(found)?.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("directory"),
        FileType::CharacterDevice => Some("character device"),
        FileType::BlockDevice => Some("block device"),
        FileType::Fifo => Some("pipe"),
        FileType::Socket => Some("socket"),
        _ => Some("special file"),
    };
    if let Some(kind) = kind {
        return Err(OpenError::Special(kind));
    }
    if let Some(name) = pseudo_files::file_system(found)? {
        return Err(OpenError::MadeUp(name));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

/// Finds and opens a regular file below a root.
///
/// # Errors
/// The errors of [`find_below`] and [`open_regular`].
pub fn open_below(root: BorrowedFd<'_>, path: &Path, last: LastLink) -> Result<File, OpenError> {
    open_regular(find_below(root, path, last)?.as_fd())
}

impl LastLink {
    fn flags(self) -> OFlags {
        match self {
            Self::Follow => OFlags::empty(),
            // With O_PATH, this opens the link itself.
            Self::Refuse => OFlags::NOFOLLOW,
        }
    }

    fn check(self, found: OwnedFd) -> Result<OwnedFd, Errno> {
        let is_link = FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Symlink;
        if is_link { Err(Errno::LOOP) } else { Ok(found) }
    }
}

/// Does what `RESOLVE_IN_ROOT` does, component by component. `..` returns to the directory that we came from,
/// so a rename cannot lead us out.
fn walk(root: BorrowedFd<'_>, path: &Path, last: LastLink) -> Result<OwnedFd, Errno> {
    let mut pending: Vec<OsString> = components(path);
    let mut entered: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    while let Some(name) = pending.pop() {
        if name == "/" {
            entered.clear();
            continue;
        }
        if name == ".." {
            entered.pop();
            continue;
        }
        let here: BorrowedFd<'_> = entered.last().map_or(root, AsFd::as_fd);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = openat(here, name.as_os_str(), flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&next)?.st_mode) {
            FileType::Symlink if pending.is_empty() && last == LastLink::Refuse => return Err(Errno::LOOP),
            FileType::Symlink => {
                links += 1;
                if links > LINK_LIMIT {
                    return Err(Errno::LOOP);
                }
                let target: CString = readlinkat(&next, c"", Vec::new())?;
                pending.extend(components(Path::new(OsStr::from_bytes(target.as_bytes()))));
            }
            FileType::Directory => entered.push(next),
            _ if pending.is_empty() => return Ok(next),
            _ => return Err(Errno::NOTDIR),
        }
    }
    match entered.pop() {
        Some(directory) => Ok(directory),
        None => openat(root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
    }
}

/// The components of a path in reverse order, with `/` for the root.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|component| *component != Component::CurDir);
    names.map(|component| OsString::from_vec(component.as_os_str().as_bytes().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::{fs, io::Read, os::unix::fs::symlink};

    use super::*;

    /// A root with a file inside and a secret beside it.
    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/a.so"), "inside").unwrap();
        fs::write(outside.path().join("secret"), "outside").unwrap();
        symlink("/usr/lib", root.join("lib")).unwrap();
        symlink("../../../../../../secret", root.join("usr/lib/up.so")).unwrap();
        symlink(outside.path().join("secret"), root.join("usr/lib/absolute.so")).unwrap();
        symlink("a.so", root.join("usr/lib/relative.so")).unwrap();
        symlink("loop.so", root.join("usr/lib/loop.so")).unwrap();
        let root = openat(CWD, &root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        (outside, root)
    }

    fn read(found: Result<OwnedFd, Errno>) -> Result<String, Errno> {
        let mut text = String::new();
        match open_regular(found?.as_fd()) {
            Ok(mut file) => file.read_to_string(&mut text).unwrap(),
            Err(error) => panic!("{error:?}"),
        };
        Ok(text)
    }

    #[test]
    fn links_stay_below_the_root() {
        let (_outside, root) = tree();
        for find in [find_below, walk] {
            let read = |path: &str| read(find(root.as_fd(), Path::new(path), LastLink::Follow));
            for path in [
                "/usr/lib/a.so",
                "usr/lib/a.so",
                "/lib/a.so",
                "/usr/lib/relative.so",
                "/../../usr/./lib/../lib/a.so",
            ] {
                assert_eq!(read(path).as_deref(), Ok("inside"), "{path}");
            }
            assert_eq!(read("/usr/lib/up.so"), Err(Errno::NOENT));
            assert_eq!(read("/usr/lib/absolute.so"), Err(Errno::NOENT));
            assert_eq!(read("/usr/lib/loop.so"), Err(Errno::LOOP));
            assert_eq!(read("/../secret"), Err(Errno::NOENT));
            assert_eq!(read("/usr/lib/a.so/b"), Err(Errno::NOTDIR));
            let refuse = |path: &str| find(root.as_fd(), Path::new(path), LastLink::Refuse).err();
            assert_eq!(refuse("/usr/lib/relative.so"), Some(Errno::LOOP));
            assert_eq!(refuse("/lib/a.so"), None, "a link that is not the last");
        }
    }

    #[test]
    fn special_files_are_not_opened() {
        let (outside, root) = tree();
        rustix::fs::mknodat(
            CWD,
            outside.path().join("root/pipe"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let open = |path| open_below(root.as_fd(), path, LastLink::Follow);
        assert!(matches!(open(Path::new("/pipe")), Err(OpenError::Special("pipe"))));
        assert!(matches!(open(Path::new("/usr")), Err(OpenError::Special("directory"))));
        assert!(matches!(open(Path::new("/")), Err(OpenError::Special("directory"))));
        assert!(matches!(open(Path::new("/none")), Err(OpenError::System(_))));
    }

    #[test]
    fn what_the_kernel_makes_up_is_not_opened() {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let opened = open_below(root.as_fd(), Path::new("/proc/version"), LastLink::Follow);
        assert!(matches!(opened, Err(OpenError::MadeUp("procfs"))), "{opened:?}");
    }
}
