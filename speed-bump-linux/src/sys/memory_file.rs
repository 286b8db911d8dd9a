//! Memory files (`memfd_create(2)`), and telling one from any other file.

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

/// `F_SEAL_EXEC`: the seal of files that were created not to be executed (Linux 6.3,
/// include/uapi/linux/fcntl.h).
const SEAL_EXEC: SealFlags = SealFlags::from_bits_retain(0x20);

/// Why a descriptor is not that of a newly created memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// No descriptor has this number any longer.
    #[error("closed")]
    Closed,
    /// Another kind of file, a file with a name, or a file in another file system.
    #[error("no memory file")]
    OtherFile,
    /// A memory file with contents.
    #[error("a memory file that is not empty")]
    NotEmpty,
    /// A memory file with seals that forbid changes.
    #[error("a memory file with seals")]
    Sealed,
    /// It does not allow reading and writing.
    #[error("not open for reading and writing")]
    Access,
}

/// The facts about a descriptor that we check.
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

/// Whether an open file is a memory file, or unnamed shared memory, which users cannot tell from one.
///
/// # Errors
/// What the system says.
pub fn is_memory_file(file: impl AsFd) -> io::Result<bool> {
    Ok(Facts::read(file.as_fd())?.is_memory_file(device()?))
}

/// Reopens a newly created memory file, for reading and writing. Others may have the given descriptor too; a
/// new one has its own position and mode, which they cannot change.
///
/// # Errors
/// The system's error. `Ok(Err(…))` if the file is [`Unlike`] a new memory file; then it is not opened.
pub fn open_new(file: impl AsFd) -> io::Result<Result<File, Unlike>> {
    let facts = Facts::read(file.as_fd())?;
    if let Some(unlike) = facts.unlike_new(device()?) {
        return Ok(Err(unlike));
    }
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(Ok(openat(CWD, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?.into()))
}

/// The file system of memory files. It is mounted nowhere.
fn device() -> io::Result<u64> {
    static DEVICE: OnceLock<u64> = OnceLock::new();
    if let Some(device) = DEVICE.get() {
        return Ok(*device);
    }
    let device = File::from(memfd_create(c"speed-bump-probe", MemfdFlags::CLOEXEC)?).metadata()?.dev();
    Ok(*DEVICE.get_or_init(|| device))
}

impl Facts {
    fn read(file: impl AsFd) -> io::Result<Self> {
        let file = file.as_fd();
        let stat = fstat(file)?;
        Ok(Self {
            mode: stat.st_mode,
            links: stat.st_nlink,
            size: stat.st_size.cast_unsigned(),
            device: stat.st_dev,
            flags: fcntl_getfl(file)?,
            // EINVAL for files without seals, EBADF with O_PATH.
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
