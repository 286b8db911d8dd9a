//! The folder of the sockets. We use it only if no other user can have put files there.

use std::{
    fs::{self, DirBuilder, Metadata},
    io,
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use super::{ControlError, FOLDER};
use crate::units::Pid;

/// The suffix of a socket's name, after the PID.
const SUFFIX: &str = ".sock";

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    /// Creates the folder if it is missing, and checks it.
    pub(super) fn make() -> Result<Self, ControlError> {
        let path = PathBuf::from(FOLDER);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| ControlError::Io { path: path.clone(), error })?;
        Self::at(path)
    }

    /// Checks the folder; `None` if it is missing.
    pub(super) fn look() -> Result<Option<Self>, ControlError> {
        match fs::symlink_metadata(FOLDER) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Self::at(FOLDER.into()).map(Some),
        }
    }

    fn at(path: PathBuf) -> Result<Self, ControlError> {
        for folder in [path.parent().unwrap_or(&path), &path] {
            let metadata = metadata(folder)?;
            if !metadata.is_dir() {
                return Err(ControlError::Unsafe { path: folder.to_owned(), why: "it is no folder" });
            }
            check(folder, &metadata)?;
        }
        Ok(Self(path))
    }

    /// The path of the socket for the session of this process.
    pub(super) fn socket(&self, pid: Pid) -> PathBuf {
        self.0.join(format!("{pid}{SUFFIX}"))
    }

    /// The PIDs of the tools that have sockets here. The tools may be gone.
    pub(super) fn sessions(&self) -> Result<Vec<Pid>, ControlError> {
        let entries = fs::read_dir(&self.0);
        let entries = entries.map_err(|error| ControlError::Io { path: self.0.clone(), error })?;
        let pid = |name: &str| name.strip_suffix(SUFFIX)?.parse().ok();
        let mut pids: Vec<Pid> =
            entries.flatten().filter_map(|entry| pid(entry.file_name().to_str()?)).collect();
        pids.sort_unstable();
        Ok(pids)
    }
}

/// Refuses a file that is not a socket, and one that another user could have put there.
pub(super) fn check_socket(path: &Path) -> Result<(), ControlError> {
    let metadata = metadata(path)?;
    if !metadata.file_type().is_socket() {
        return Err(ControlError::Unsafe { path: path.to_owned(), why: "it is no socket" });
    }
    check(path, &metadata)
}

fn metadata(path: &Path) -> Result<Metadata, ControlError> {
    fs::symlink_metadata(path).map_err(|error| ControlError::Io { path: path.to_owned(), error })
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), ControlError> {
    let own = rustix::process::geteuid().as_raw();
    let why = if metadata.uid() != own && metadata.uid() != 0 {
        "it belongs to another user"
    } else if metadata.mode() & 0o022 != 0 {
        "others than its owner may write to it"
    } else {
        return Ok(());
    };
    Err(ControlError::Unsafe { path: path.to_owned(), why })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::UnixListener,
    };

    use super::*;

    #[test]
    fn what_others_could_have_put_there_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path().join("sessions");
        let why = |path: &Path| match Place::at(path.to_owned()) {
            Err(ControlError::Unsafe { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        fs::create_dir(&sessions).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&sessions, 0o700);
        assert!(Place::at(sessions.clone()).is_ok());
        mode(&sessions, 0o777);
        assert_eq!(why(&sessions), "others than its owner may write to it");
        mode(&sessions, 0o700);
        mode(folder.path(), 0o1777);
        assert_eq!(why(&sessions), "others than its owner may write to it");
        mode(folder.path(), 0o700);
        let link = folder.path().join("link");
        symlink(&sessions, &link).unwrap();
        assert_eq!(why(&link), "it is no folder");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&sessions, Some(65_534), None).unwrap();
            assert_eq!(why(&sessions), "it belongs to another user");
        }
    }

    #[test]
    fn sockets_are_told_from_all_else() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place(folder.path().to_owned());
        let pid = Pid::own();
        let socket = place.socket(pid);
        fs::write(&socket, "").unwrap();
        assert!(matches!(check_socket(&socket), Err(ControlError::Unsafe { why: "it is no socket", .. })));
        fs::remove_file(&socket).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(check_socket(&socket).is_ok());
        for name in ["x.sock", "0.sock", "kmod.lock", "-1.sock"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(place.sessions().unwrap(), [pid]);
    }
}
