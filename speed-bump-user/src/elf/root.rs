//! Opening files below a process's root directory, without following links out of it, and only if they are
//! regular files.
//!
//! The process may be a container's, and what lies below its root is its business: a symbolic link there
//! to `/etc/shadow` must not make us, as root, read ours.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2, readlinkat},
    io::Errno,
};

/// As the kernel's own limit (`MAXSYMLINKS`).
const LINK_LIMIT: usize = 40;

/// A directory that paths are resolved in as if it were `/`.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    path: PathBuf,
}

/// Why a file could not be opened.
#[derive(Debug)]
pub(super) enum OpenError {
    /// Not a regular file.
    Special(&'static str),
    System(io::Error),
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

impl Root {
    /// Opens the directory, such as `/proc/PID/root`. It stays the same directory if the process ends.
    ///
    /// # Errors
    /// What the system says; without `CAP_SYS_PTRACE`, `EACCES` for other users' processes.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { directory, path: path.to_owned() })
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file for reading by its path below the root.
    pub(super) fn open_regular(&self, path: &Path) -> Result<File, OpenError> {
        reopen(self.resolve(path)?)
    }

    /// Finds the file without opening it (`O_PATH`).
    fn resolve(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        // EAGAIN: a rename raced with a `..`.
        for _ in 0..8 {
            match openat2(&self.directory, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                Err(Errno::AGAIN) => {}
                // Seccomp filters older than the call (Linux 5.6) answer either.
                Err(Errno::NOSYS | Errno::PERM) => return self.walk(path),
                resolved => return resolved,
            }
        }
        self.walk(path)
    }

    /// What `RESOLVE_IN_ROOT` does, component by component. `..` goes to the directory that we came from, so
    /// that no rename can lead out.
    fn walk(&self, path: &Path) -> Result<OwnedFd, Errno> {
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
            let here: BorrowedFd<'_> = entered.last().map_or(self.directory.as_fd(), AsFd::as_fd);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = openat(here, name.as_os_str(), flags, Mode::empty())?;
            match FileType::from_raw_mode(fstat(&next)?.st_mode) {
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
            None => openat(&self.directory, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
        }
    }
}

/// The components of a path, last first, `/` for the root.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|component| *component != Component::CurDir);
    names.map(|component| OsString::from_vec(component.as_os_str().as_bytes().to_owned())).collect()
}

/// Opens a regular file for reading by a path of our own mount namespace.
pub(super) fn open_regular(path: &Path) -> Result<File, OpenError> {
    reopen(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens for reading what was found, if it is a regular file. Merely opening a device can have effects (a
/// watchdog starts), and opening a pipe blocks; `O_PATH` has neither.
fn reopen(found: OwnedFd) -> Result<File, OpenError> {
    let kind = match FileType::from_raw_mode(fstat(&found)?.st_mode) {
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
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::{fs, io::Read, os::unix::fs::symlink};

    use super::*;

    /// A root with a file in and a secret beside it.
    fn tree() -> (tempfile::TempDir, Root) {
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
        let root = Root::open(&root).unwrap();
        (outside, root)
    }

    fn read(found: Result<OwnedFd, Errno>) -> Result<String, Errno> {
        let mut text = String::new();
        match reopen(found?) {
            Ok(mut file) => file.read_to_string(&mut text).unwrap(),
            Err(error) => panic!("{error:?}"),
        };
        Ok(text)
    }

    #[test]
    fn links_stay_below_the_root() {
        let (_outside, root) = tree();
        for resolve in [Root::resolve, Root::walk] {
            let read = |path: &str| read(resolve(&root, Path::new(path)));
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
        assert!(matches!(root.open_regular(Path::new("/pipe")), Err(OpenError::Special("pipe"))));
        assert!(matches!(root.open_regular(Path::new("/usr")), Err(OpenError::Special("directory"))));
        assert!(matches!(root.open_regular(Path::new("/")), Err(OpenError::Special("directory"))));
        assert!(matches!(open_regular(Path::new("/dev/null")), Err(OpenError::Special("character device"))));
        assert!(matches!(root.open_regular(Path::new("/none")), Err(OpenError::System(_))));
    }
}
