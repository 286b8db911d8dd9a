//! Files that are written whole or not at all, also by a tool that is killed meanwhile.
//!
//! Contents go into a file without a name (`O_TMPFILE`), which ends with the tool. When it is whole, it gets
//! its name. Where another file has that name, which only a rename can take away, it has one of ours in
//! between, for two system calls. That name says whose it is: the next tool that writes to the folder removes
//! what one has left that is gone. Where the file system has no files without a name, it has ours all along.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, linkat, open},
    io::Errno,
};

use crate::process::stat::Stat;

/// What names in between begin with.
const PREFIX: &str = ".speed-bump-";
/// Files of a folder that are looked at.
const LOOKED_AT: usize = 65_536;
/// Names in between that are tried.
const NAMES: u32 = 100;

/// Puts a file with these contents at `path`, in the place of what is there. It is made with `mode`, as far
/// as the umask allows; `finish` may change that before it has its name.
///
/// # Errors
/// What the system says; then what is there stays as it is.
pub fn write(
    path: &Path,
    mode: u32,
    contents: &[u8],
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let folder = folder(path);
    let owner = Owner::own();
    remove_left(folder);
    let fill = |mut file: &File| {
        finish(file)?;
        file.write_all(contents)?;
        file.sync_all()
    };
    match open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(mode)) {
        Ok(file) => {
            let file = File::from(file);
            fill(&file)?;
            name(&file, path, &owner)
        }
        // The file system has none.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            let prefix = owner.prefix();
            let mut builder = tempfile::Builder::new();
            let file = builder.prefix(&prefix).permissions(permissions).tempfile_in(folder)?;
            fill(file.as_file())?;
            file.persist(path).map(drop).map_err(|error| error.error)
        }
        Err(error) => Err(error.into()),
    }
}

/// Tries whether files can be made in the folder of `path`. Leaves nothing there.
///
/// # Errors
/// What the system says.
pub fn check(path: &Path) -> io::Result<()> {
    tempfile::tempfile_in(folder(path)).map(drop)
}

/// The folder that a path is in.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Gives a file its name.
fn name(file: &File, path: &Path, owner: &Owner) -> io::Result<()> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| linkat(CWD, own.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW);
    match link(path) {
        Err(Errno::EXIST) => {}
        linked => return Ok(linked?),
    }
    for number in 0..NAMES {
        let between = folder(path).join(format!("{}{number}", owner.prefix()));
        match link(&between) {
            // Of another thread.
            Err(Errno::EXIST) => continue,
            linked => linked?,
        }
        return fs::rename(&between, path).inspect_err(|_| {
            let _ = fs::remove_file(&between);
        });
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes what tools have left in a folder that are gone. Others write there too: only files of our own user
/// count, whose names say that they are of this PID namespace.
fn remove_left(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(LOOKED_AT) {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(Owner::of) else { continue };
        let own = rustix::process::geteuid().as_raw();
        // Of the entry itself: no link is followed.
        let is_ours = entry.metadata().is_ok_and(|of| of.is_file() && of.uid() == own);
        if is_ours && owner.is_gone() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that a file is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    /// The inode of its PID namespace.
    namespace: u64,
    pid: i32,
    /// When it started, in ticks since the machine did.
    started: u64,
}

impl Owner {
    fn own() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        // Nobody can judge those of which this is not known.
        Self {
            namespace: pid_namespace().unwrap_or_default(),
            pid,
            started: started(pid).unwrap_or_default(),
        }
    }

    /// What names of its files begin with.
    fn prefix(self) -> String {
        let Self { namespace, pid, started } = self;
        format!("{PREFIX}{namespace}-{pid}-{started}-")
    }

    /// The owner that a file's name says.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let namespace = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        parts.next().map(|_| Self { namespace, pid, started })
    }

    /// Whether it is gone for sure.
    fn is_gone(self) -> bool {
        let is_known = self.namespace != 0 && self.pid > 0 && self.started != 0;
        let is_here = pid_namespace().is_ok_and(|own| own == self.namespace);
        is_known
            && is_here
            && match started(self.pid) {
                Ok(started) => started != self.started,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
    }
}

fn pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

fn started(pid: i32) -> io::Result<u64> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    Ok(Stat::parse(&text).ok_or(io::ErrorKind::InvalidData)?.starttime)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_comes_in_the_place_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        for contents in ["one", "another"] {
            write(&path, 0o600, contents.as_bytes(), |_| Ok(())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
        // A link is replaced, and what it leads to stays.
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        write(&link, 0o600, b"own", |_| Ok(())).unwrap();
        assert_eq!(
            (fs::read_to_string(&link).unwrap(), fs::read_to_string(&path).unwrap()),
            ("own".into(), "another".into())
        );
        assert_eq!(names(folder.path()), ["link", "report.json"]);
    }

    #[test]
    fn what_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        fs::write(&path, "before").unwrap();
        assert!(write(&path, 0o600, b"new", |_| Err(io::ErrorKind::Other.into())).is_err());
        assert!(write(&folder.path().join("none/x"), 0o600, b"", |_| Ok(())).is_err());
        // A folder cannot be replaced by a file.
        fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(write(&folder.path().join("folder"), 0o600, b"new", |_| Ok(())).is_err());
        check(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        assert_eq!(names(folder.path()), ["folder", "report.json"]);
    }

    #[test]
    fn what_a_killed_tool_left_goes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let own = Owner::own();
        // Nobody has the highest number there is.
        let gone = Owner { pid: i32::MAX, ..own };
        let file = |owner: Owner| format!("{}0", owner.prefix());
        let stays = [
            file(own),
            file(Owner { namespace: own.namespace + 1, ..gone }),
            file(Owner { started: 0, ..gone }),
            ".speed-bump-x".to_owned(),
            ".speed-bump-1-2".to_owned(),
            "report.json".to_owned(),
        ];
        for name in stays.iter().cloned().chain([file(gone), file(Owner { started: own.started + 1, ..own })])
        {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let link = format!("{}1", gone.prefix());
        symlink("report.json", folder.path().join(&link)).unwrap();
        write(&folder.path().join("report.json"), 0o600, b"new", |_| Ok(())).unwrap();
        let mut expected: Vec<String> = stays.into_iter().chain([link]).collect();
        expected.sort();
        assert_eq!(names(folder.path()), expected);
    }
}
