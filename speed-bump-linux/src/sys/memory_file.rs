//! Memory files (`memfd_create(2)`), and how to tell one from any other file.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::fs::MetadataExt as _,
    },
    sync::OnceLock,
};

use rustix::fs::{
    CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fstat, memfd_create, openat,
};

/// `F_SEAL_EXEC`, which files that may not be executed are made with (Linux 6.3, include/uapi/linux/fcntl.h).
const SEAL_EXEC: SealFlags = SealFlags::from_bits_retain(0x20);

/// Why a descriptor is not one of a memory file that was just made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// There is none with this number any more.
    #[error("closed")]
    Closed,
    /// Another kind of file, a file with a name, or one of another file system.
    #[error("no memory file")]
    OtherFile,
    /// A memory file with contents.
    #[error("a memory file that is not empty")]
    NotEmpty,
    /// A memory file that may not be changed any more.
    #[error("a memory file with seals")]
    Sealed,
    /// It does not allow reading and writing.
    #[error("not open for reading and writing")]
    Access,
}

/// What is checked of a descriptor.
#[derive(Clone, Copy, Debug)]
struct Facts {
    mode: u32,
    links: u64,
    size: u64,
    device: u64,
    flags: OFlags,
    /// Absent for files that cannot be sealed.
    seals: Option<SealFlags>,
}

/// Whether an open file is a memory file, or shared memory without a name, which no user can tell from it.
///
/// # Errors
/// What the system says.
pub fn is_memory_file(file: impl AsFd) -> io::Result<bool> {
    Ok(Facts::of(file.as_fd())?.is_memory_file(device()?))
}

/// Opens a memory file anew, for reading and writing, if it was just made: so that whoever has the given
/// descriptor too has no say in the position and the mode of ours.
///
/// # Errors
/// What the system says; the file is opened only if nothing is found that makes it [`Unlike`] one.
pub fn open_new(file: impl AsFd) -> io::Result<Result<File, Unlike>> {
    let facts = Facts::of(file.as_fd())?;
    if let Some(unlike) = facts.unlike_new(device()?) {
        return Ok(Err(unlike));
    }
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(Ok(openat(CWD, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?.into()))
}

/// The file system that memory files lie in. It is mounted nowhere.
fn device() -> io::Result<u64> {
    static DEVICE: OnceLock<u64> = OnceLock::new();
    if let Some(device) = DEVICE.get() {
        return Ok(*device);
    }
    let device = File::from(memfd_create(c"speed-bump-probe", MemfdFlags::CLOEXEC)?).metadata()?.dev();
    Ok(*DEVICE.get_or_init(|| device))
}

impl Facts {
    fn of(file: impl AsFd) -> io::Result<Self> {
        let file = file.as_fd();
        let stat = fstat(file)?;
        Ok(Self {
            mode: stat.st_mode,
            links: stat.st_nlink,
            size: stat.st_size.cast_unsigned(),
            device: stat.st_dev,
            flags: fcntl_getfl(file)?,
            // EINVAL for files that have none, EBADF with O_PATH.
            seals: fcntl_get_seals(file).ok(),
        })
    }

    fn is_memory_file(&self, device: u64) -> bool {
        rustix::fs::FileType::from_raw_mode(self.mode) == rustix::fs::FileType::RegularFile
            && self.links == 0
            && self.device == device
            && self.seals.is_some()
    }

    fn unlike_new(&self, device: u64) -> Option<Unlike> {
        let may_write = self.flags & OFlags::ACCMODE == OFlags::RDWR && !self.flags.contains(OFlags::PATH);
        if !self.is_memory_file(device) {
            Some(Unlike::OtherFile)
        } else if !may_write {
            Some(Unlike::Access)
        } else if self.seals.is_none_or(|seals| !(seals - SEAL_EXEC).is_empty()) {
            Some(Unlike::Sealed)
        } else if self.size != 0 {
            Some(Unlike::NotEmpty)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{io::Write as _, os::fd::OwnedFd};

    use rustix::fs::fcntl_add_seals;

    use super::*;

    fn made() -> OwnedFd {
        memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap()
    }

    fn unlike(file: impl AsFd) -> Option<Unlike> {
        open_new(file).unwrap().err()
    }

    #[test]
    fn one_that_was_just_made_is_opened_for_writing() {
        let file = made();
        assert!(is_memory_file(&file).unwrap());
        let mut own = open_new(&file).unwrap().unwrap();
        own.write_all(b"contents").unwrap();
        assert_eq!(rustix::fs::tell(&file).unwrap(), 0, "a position of its own");
        assert_eq!(unlike(&file), Some(Unlike::NotEmpty));
    }

    #[test]
    fn one_that_may_not_be_executed_is_one_too() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        // Not before Linux 6.3.
        let Ok(file) = memfd_create(c"test", flags) else { return };
        assert_eq!(unlike(file), None);
    }

    #[test]
    fn other_files_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let named = File::create_new(folder.path().join("named")).unwrap();
        assert_eq!(unlike(&named), Some(Unlike::OtherFile));
        assert_eq!(unlike(tempfile::tempfile().unwrap()), Some(Unlike::OtherFile));
        assert_eq!(
            unlike(File::options().read(true).write(true).open("/dev/null").unwrap()),
            Some(Unlike::OtherFile)
        );
        let path = openat(CWD, folder.path().join("named"), OFlags::PATH, Mode::empty()).unwrap();
        assert_eq!(unlike(path), Some(Unlike::OtherFile));
        let (pipe, _other) = io::pipe().unwrap();
        assert_eq!(unlike(pipe), Some(Unlike::OtherFile));
        // Shared memory has a name where it is mounted, and lies in another file system.
        if let Ok(shared) = tempfile::tempfile_in("/dev/shm") {
            assert_eq!(unlike(shared), Some(Unlike::OtherFile));
        }
    }

    #[test]
    fn what_its_maker_may_not_do_is_not_done_for_it() {
        let file = made();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let open = |flags| openat(CWD, &path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(unlike(open(OFlags::RDONLY)), Some(Unlike::Access));
        assert_eq!(unlike(open(OFlags::WRONLY)), Some(Unlike::Access));
        assert_eq!(unlike(open(OFlags::PATH)), Some(Unlike::OtherFile));
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert_eq!(unlike(&file), Some(Unlike::Sealed));
        let unsealable = memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(unlike(unsealable), Some(Unlike::Sealed));
    }
}
