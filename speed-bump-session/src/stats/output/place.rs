//! Writes a report to a path. What is at the path decides how we write.
//!
//! If there is a file or nothing, we write the report elsewhere and move it there. So the path always has a
//! complete file, the old one or the new one. A device or a FIFO stays, and we write the report into it. We
//! never follow a symbolic link, because in a folder like /tmp any user may have put the link there. The
//! names of our own descriptors are also symbolic links, but we recognise these names.

use std::{
    fs::{File, Metadata, Permissions},
    io,
    os::{
        fd::{AsFd, RawFd},
        unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, Gid, Mode, OFlags, Uid, fchown, fstat},
    io::Errno,
};

use super::Content;
use crate::whole_file::{self, folder};

/// How long we wait for a FIFO to get a reader when the report is ready.
const PATIENCE_FOR_READERS: Duration = Duration::from_secs(5);
/// The time between two checks for a reader.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long we wait for a reader that has stopped reading, in seconds.
const PATIENCE_WITH_READERS: i64 = 30;
/// How many bytes a pipe takes without blocking if it takes any (`PIPE_BUF`).
const PART: usize = 4096;

/// How we write to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// We rename a new file. For a file, for nothing, and for a symbolic link, which we replace.
    File,
    /// We write into a FIFO.
    Fifo,
    /// We write into a character device.
    Device,
}

/// The number of the descriptor, if the path is one of the system's names for our own descriptors.
pub(super) fn descriptor_named(path: &Path) -> Option<RawFd> {
    let path = path.to_str()?;
    match path {
        "/dev/stdout" => return Some(1),
        "/dev/stderr" => return Some(2),
        _ => {}
    }
    let own = format!("/proc/{}/fd/", std::process::id());
    let folders = ["/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/", &own];
    let number = folders.iter().find_map(|folder| path.strip_prefix(folder))?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

/// Checks that a descriptor is open for writing.
pub(super) fn check_descriptor(descriptor: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    let mode = flags & OFlags::RWMODE;
    let is_writable = (mode == OFlags::WRONLY || mode == OFlags::RDWR) && !flags.contains(OFlags::PATH);
    is_writable.then_some(()).ok_or_else(|| Errno::BADF.into())
}

/// Checks that we can write a report to this path.
pub(super) fn check(path: &Path) -> io::Result<()> {
    if place_of(path)? == Place::File {
        whole_file::check(path)?;
    }
    Ok(())
}

/// Writes to the path. What is there now decides how.
pub(super) fn write(path: &Path, content: Content<'_>) -> io::Result<()> {
    match place_of(path)? {
        Place::File => write_whole(path, content.exact()),
        Place::Fifo => write_open(open_in_place(path, FileType::Fifo)?, content),
        Place::Device => write_open(open_in_place(path, FileType::CharacterDevice)?, content),
    }
}

/// Writes to an open descriptor, which may be a terminal.
pub(super) fn write_open(to: impl AsFd, content: Content<'_>) -> io::Result<()> {
    write_patiently(to, &content.shown())
}

fn place_of(path: &Path) -> io::Result<Place> {
    let itself = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::File),
        Err(error) => return Err(error),
    };
    if !itself.file_type().is_symlink() {
        return place_for(&itself);
    }
    // We do not follow a symbolic link, and replace it only if it leads to a file or to nothing.
    match path.metadata().map(|metadata| (place_for(&metadata), metadata.is_file())) {
        Ok((Ok(_), false)) => {
            Err(unfit("it is a symbolic link to what is no file, and links are not followed"))
        }
        Ok((Err(error), _)) => Err(error),
        Ok((Ok(_), true)) | Err(_) => Ok(Place::File),
    }
}

fn place_for(metadata: &Metadata) -> io::Result<Place> {
    let kind = metadata.file_type();
    if kind.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else if kind.is_fifo() {
        Ok(Place::Fifo)
    } else if kind.is_char_device() {
        Ok(Place::Device)
    } else if kind.is_block_device() {
        Err(unfit("it is a disk, which the report would damage"))
    } else if kind.is_socket() {
        Err(unfit("it is a socket, which cannot be opened"))
    } else {
        Ok(Place::File)
    }
}

fn unfit(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{why}; name a file, or - for standard output"))
}

/// Opens a FIFO or a device. Creates nothing, follows no link, and waits only for a FIFO's reader.
fn open_in_place(path: &Path, kind: FileType) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let deadline = Instant::now() + PATIENCE_FOR_READERS;
    let opened = loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NXIO) if kind == FileType::Fifo && Instant::now() < deadline => {
                std::thread::sleep(LOOK_EVERY);
            }
            Err(Errno::NXIO) if kind == FileType::Fifo => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it is a FIFO without a reader"));
            }
            opened => break opened?,
        }
    };
    if FileType::from_raw_mode(fstat(&opened)?.st_mode) != kind {
        return Err(unfit("another file came into its place"));
    }
    Ok(File::from(opened))
}

/// Writes in parts, each when there is room for it. So a reader that stops does not block us for ever.
fn write_patiently(to: impl AsFd, mut text: &[u8]) -> io::Result<()> {
    let limit = Timespec { tv_sec: PATIENCE_WITH_READERS, tv_nsec: 0 };
    while !text.is_empty() {
        match poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&limit)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "its reader has stopped reading")),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::write(&to, &text[..text.len().min(PART)]) {
            Ok(written) => text = &text[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Replaces a file. The new file gets the mode and owner of the former one.
fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let before = path.symlink_metadata().ok().filter(Metadata::is_file);
    let mode = if before.is_some() { 0o600 } else { 0o644 };
    whole_file::write(path, mode, text, |file| {
        let Some(before) = before else { return Ok(()) };
        // In a folder where any user may put files, anybody may own the former file. So its owner does not
        // get the new file.
        let is_ours = folder(path).metadata()?.mode() & 0o002 == 0;
        let most = if is_ours { 0o777 } else { 0o644 };
        if is_ours {
            // If we lack the privilege for this, the file belongs to us, as any new file does.
            let (owner, group) = (Uid::from_raw(before.uid()), Gid::from_raw(before.gid()));
            let _ = fchown(file, Some(owner), Some(group));
        }
        file.set_permissions(Permissions::from_mode(before.mode() & most))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn our_descriptors_are_known_by_name() {
        let own = format!("/proc/{}/fd/7", std::process::id());
        for (path, number) in [
            ("/dev/stdout", Some(1)),
            ("/dev/stderr", Some(2)),
            ("/dev/fd/63", Some(63)),
            ("/proc/self/fd/3", Some(3)),
            ("/proc/thread-self/fd/3", Some(3)),
            (own.as_str(), Some(7)),
            ("/dev/fd/", None),
            ("/dev/fd/+3", None),
            ("/dev/fd/3/x", None),
            ("/dev/fd/99999999999", None),
            ("/proc/1/fd/1", None),
            ("/dev/null", None),
        ] {
            assert_eq!(descriptor_named(Path::new(path)), number, "{path}");
        }
    }

    #[test]
    fn places_are_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (file, fifo) = (at("file"), at("fifo"));
        std::fs::write(&file, "").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink(&file, at("to_file")).unwrap();
        symlink(&fifo, at("to_fifo")).unwrap();
        symlink(at("nothing"), at("to_nothing")).unwrap();
        assert_eq!(place_of(&at("new")).unwrap(), Place::File);
        assert_eq!(place_of(&file).unwrap(), Place::File);
        assert_eq!(place_of(&fifo).unwrap(), Place::Fifo);
        assert_eq!(place_of(Path::new("/dev/null")).unwrap(), Place::Device);
        assert_eq!(place_of(&at("to_file")).unwrap(), Place::File);
        assert_eq!(place_of(&at("to_nothing")).unwrap(), Place::File);
        for (path, word) in
            [(at("to_fifo"), "symbolic link"), (at("socket"), "socket"), (at("."), "directory")]
        {
            let error = place_of(&path).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 6, "something was left or went");
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(check_descriptor(&reader).is_err());
        assert!(check_descriptor(&writer).is_ok());
    }

    #[test]
    fn a_reader_that_went_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(write_patiently(&writer, b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn mode_and_owner_outlive_a_new_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        write(&path, Content::Bytes(b"first")).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o133, 0);
        for mode in [0o600, 0o664] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            write(&path, Content::Bytes(b"second")).unwrap();
            assert_eq!(path.metadata().unwrap().mode() & 0o777, mode);
        }
        // In a folder of everybody's, the former file may be from anyone who wants to write into the report.
        // So nobody else may have the right to write to the new file.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        write(&path, Content::Bytes(b"third")).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read(&path).unwrap(), b"third");
    }
}
