//! Writes a whole file or nothing, even if someone kills the tool meanwhile.
//!
//! We write the contents into a file without a name (`O_TMPFILE`), which vanishes if the tool dies. When the
//! file is complete, we give the name to it. If another file has that name, only a rename can replace this
//! other file. So our file has a temporary name for two system calls. The temporary name says which process
//! the file belongs to. The next tool that writes to the folder removes the files of processes that are gone.
//! On a file system without nameless files, our file has the temporary name from the beginning.

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

/// The prefix of temporary names.
const PREFIX: &str = ".speed-bump-";
/// The most entries of a folder that we search.
const LOOKED_AT: usize = 65_536;
/// The most temporary names that we try.
const NAMES: u32 = 100;

/// Writes a file with these contents at `path`, and replaces what is there. The file's mode is `mode` without
/// the bits of the umask. `finish` may change the file before we give it the name.
///
/// # Errors
/// The system's error; then the old file stays as it is.
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
        // The file system has no nameless files.
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

/// Checks whether we can create files in the folder of `path`. Leaves nothing there.
///
/// # Errors
/// The system's error.
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

/// Gives the name `path` to the open file.
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
            // Another thread uses this name.
            Err(Errno::EXIST) => continue,
            linked => linked?,
        }
        return fs::rename(&between, path).inspect_err(|_| {
            let _ = fs::remove_file(&between);
        });
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes the files that tools left in a folder before they ended. Other programs write there too, so we
/// remove only files of our own user whose names say that they belong to this PID namespace.
fn remove_left(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(LOOKED_AT) {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(Owner::from_name) else { continue };
        let own = rustix::process::geteuid().as_raw();
        // This reads the entry itself, and does not follow a link.
        let is_ours = entry.metadata().is_ok_and(|of| of.is_file() && of.uid() == own);
        if is_ours && owner.is_gone() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that a temporary file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    /// The inode of the process's PID namespace.
    namespace: u64,
    pid: i32,
    /// When the process started, in ticks since boot.
    started: u64,
}

impl Owner {
    fn own() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        // A part that we cannot read stays 0. Then no other tool can decide whether this owner is gone.
        Self {
            namespace: pid_namespace().unwrap_or_default(),
            pid,
            started: started(pid).unwrap_or_default(),
        }
    }

    /// The prefix of the process's temporary names.
    fn prefix(self) -> String {
        let Self { namespace, pid, started } = self;
        format!("{PREFIX}{namespace}-{pid}-{started}-")
    }

    /// Reads the owner from a file's name.
    fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let namespace = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        parts.next().map(|_| Self { namespace, pid, started })
    }

    /// Whether the process is certainly gone.
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
        // The new file replaces a link. The file that the link leads to stays.
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
        // A file cannot replace a folder.
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
        // No process has this number, because it is the highest one.
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
