//! Memory files (`memfd_create(2)`), and how we tell a memory file from any other file.

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

/// `F_SEAL_EXEC`: the seal of a file that its creator marked as not executable (Linux 6.3,
/// include/uapi/linux/fcntl.h).
const SEAL_EXEC: SealFlags = SealFlags::from_bits_retain(0x20);

/// Why a descriptor does not belong to a newly created memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// No open descriptor has this number.
    #[error("closed")]
    Closed,
    /// The file is of another kind, has a name, or is in another file system.
    #[error("no memory file")]
    OtherFile,
    /// The file has contents.
    #[error("a memory file that is not empty")]
    NotEmpty,
    /// The file has seals that forbid changes.
    #[error("a memory file with seals")]
    Sealed,
    /// The descriptor does not allow reading and writing.
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
    /// Absent for a file that cannot have seals.
    seals: Option<SealFlags>,
}

/// Whether an open file is a memory file. This is also true for unnamed shared memory, because no user can
/// tell the two apart.
///
/// # Errors
/// The system's error.
pub fn is_memory_file(file: impl AsFd) -> io::Result<bool> {
    Ok(Facts::read(file.as_fd())?.is_memory_file(device()?))
}

/// Opens a newly created memory file again, for reading and writing. Other programs may have the given
/// descriptor, too. The new descriptor has its own position and mode, which the other programs cannot change.
///
/// # Errors
/// The system's error. The result is `Ok(Err(…))` if the file is [`Unlike`] a new memory file; then we do not
/// open the file.
pub fn open_new(file: impl AsFd) -> io::Result<Result<File, Unlike>> {
    let facts = Facts::read(file.as_fd())?;
    if let Some(unlike) = facts.unlike_new(device()?) {
        return Ok(Err(unlike));
    }
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(Ok(openat(CWD, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?.into()))
}

/// The device number of the file system of memory files. This file system is not mounted anywhere.
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
            // The error is EINVAL for files without seals, and EBADF with O_PATH.
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
        // Kernels before Linux 6.3 do not know this flag.
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
        // Shared memory has a name where it is mounted, and is in another file system.
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
