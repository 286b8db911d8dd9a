//! Files that a process has mapped, and how we open exactly those files.
//!
//! A path is not enough. The file may have been replaced or deleted, it may lie in another mount namespace,
//! or it may never have had a name. So we open a file and then check that it is the mapped inode. Under
//! overlayfs even /proc/PID/map_files may lead to a copy; then we compare the pages.

use std::{
    ffi::OsStr,
    fs::{File, Metadata},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno};

use super::{
    Process,
    mappings::{DELETED, MappedRange},
    maps,
    overlay::{self, OverlayError},
    same_file::is_behind,
};
use crate::{
    sys::{below::open_regular, unread_map::UnreadMap},
    units::{FileOffset, Pid, VirtualAddress},
};

/// A file that a process has mapped executable.
#[derive(Clone, Debug)]
pub struct MappedFile {
    /// The path as the process sees it, without ` (deleted)`. Some paths lead to no file: `/memfd:NAME`,
    /// `anon_inode:…`, and paths of files that were mapped before a chroot.
    pub path_in_process: PathBuf,
    /// Whether the file had been deleted when we read the mappings.
    pub deleted: bool,
    /// Device and inode number from /proc/PID/maps; stat(2) may return others.
    pub identity: FileIdentity,
    /// The parts of the file in memory, in the order of their addresses, executable or not.
    pub ranges: Vec<MappedRange>,
    /// The path as the kernel showed it to us.
    pub(super) shown: PathBuf,
}

/// The device and inode number of a mapped file in /proc/PID/maps. On overlayfs and btrfs, stat(2) returns
/// another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// Inode number in that file system.
    pub inode: u64,
}

/// This directory exists on every kernel that has map_files.
const OWN_MAP_FILES: &str = "/proc/self/map_files";

/// A mapped file, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// Our own path to the file, if the process's path does not lead to the file.
    elsewhere: Option<PathBuf>,
}

/// Why we could not open a mapped file.
#[derive(Debug, thiserror::Error)]
pub enum MappedFileError {
    /// The process's path now leads to another file.
    #[error(
        "{} was replaced on disk since process {pid} mapped it, and the running one can only be opened with \
         CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN: use sudo, grant the program CAP_CHECKPOINT_RESTORE, or \
         restart the process", .path.display()
    )]
    Replaced {
        /// PID of the process that maps the file.
        pid: Pid,
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// The file has no path that we can follow.
    #[error(
        "{} has no name any more, or none that leads to it from here; what process {pid} runs can only be \
         opened with CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN: use sudo, grant the program \
         CAP_CHECKPOINT_RESTORE, or restart the process", .path.display()
    )]
    Nameless {
        /// PID of the process that maps the file.
        pid: Pid,
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// Overlayfs has copied the file, and now shows the copy.
    #[error(
        "{} was changed after process {pid} had mapped it, so that overlayfs shows a copy, and not the file \
         that the process runs: {error}; restart the process, or attach before the file is changed (chmod \
         and touch change it, too)", .path.display()
    )]
    CopiedUp {
        /// PID of the process that maps the file.
        pid: Pid,
        /// The path as the process sees it.
        path: PathBuf,
        /// Why we did not find the file that the process runs.
        error: OverlayError,
    },
    /// The process no longer maps the file.
    #[error("{} is no longer mapped by process {pid}: it was unloaded, or the process has \
             ended", .path.display())]
    Unmapped {
        /// PID of the process that mapped the file.
        pid: Pid,
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// The mapping is not of a regular file, so it cannot have a uprobe.
    #[error("{} is not a regular file (process {pid} maps it from a driver or a device)", .path.display())]
    NotRegular {
        /// PID of the process that maps the file.
        pid: Pid,
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// Opening failed.
    #[error("opening {} as process {pid} sees it: {source}", .path.display())]
    Io {
        /// PID of the process that maps the file.
        pid: Pid,
        /// The path as the process sees it.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
}

impl MappedFile {
    /// The executable parts of the file.
    pub fn executable_ranges(&self) -> impl Iterator<Item = &MappedRange> {
        self.ranges.iter().filter(|range| range.executable)
    }

    /// Whether this file is the program that the process runs.
    pub fn is_program_of(&self, process: &Process) -> bool {
        process.executable().is_ok_and(|program| program == self.shown)
    }

    /// The addresses where an offset of the file is executable. There are several if the process has loaded
    /// the file more than once (`dlmopen`).
    pub fn addresses_of(&self, offset: FileOffset) -> impl Iterator<Item = VirtualAddress> {
        self.executable_ranges().filter_map(move |range| range.address_of(offset))
    }

    /// The file offset that an address is mapped from.
    pub fn offset_of(&self, address: VirtualAddress) -> Option<FileOffset> {
        self.ranges.iter().find_map(|range| range.offset_of(address))
    }

    /// The number to add (wrapping) to an address in the ELF file to get the address in the process. We
    /// compute this number from one executable offset whose address we know both in the file and in the
    /// process. If the process has loaded several copies, this number is for the first.
    pub fn load_bias(&self, offset: FileOffset, in_file: VirtualAddress) -> Option<u64> {
        self.addresses_of(offset).next().map(|address| address.0.wrapping_sub(in_file.0))
    }

    /// Opens exactly this file. With CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN we can open any file, even one
    /// that was deleted or has no name. Without those capabilities, we can open the file only while its name
    /// leads to it.
    pub fn open(&self, process: &Process) -> Result<OpenFile, MappedFileError> {
        let (pid, path) = (process.pid(), self.path_in_process.clone());
        let mut permitted = true;
        let code = self.executable_ranges().next().is_some();
        for range in self.ranges.iter().filter(|range| range.executable || !code) {
            let opened = self.open_range(process, *range).and_then(|file| {
                let is_it = self.identity.is_of(&file)?;
                Ok((file, is_it))
            });
            match opened {
                Ok((file, is_it)) if overlay::is_overlay(&file) => {
                    if let Some(file) = self.open_below(process, *range, file, is_it)? {
                        return Ok(file);
                    }
                }
                Ok((file, true)) => return Ok(OpenFile { file, elsewhere: None }),
                // Another mapping is there by now.
                Ok((_, false)) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    // Nothing is mapped there, or the kernel has no map_files (CONFIG_CHECKPOINT_RESTORE).
                    Some(Errno::NOENT | Errno::SRCH) => {}
                    Some(Errno::PERM | Errno::ACCESS) => permitted = false,
                    _ if error.kind() == io::ErrorKind::InvalidInput => {
                        return Err(MappedFileError::NotRegular { pid, path });
                    }
                    _ => return Err(MappedFileError::Io { pid, path, source: error }),
                },
            }
        }
        match self.open_by_name(process) {
            Err(_) if !process.is_alive() => Err(MappedFileError::Unmapped { pid, path }),
            Err(MappedFileError::Nameless { .. }) if permitted && Path::new(OWN_MAP_FILES).exists() => {
                Err(MappedFileError::Unmapped { pid, path })
            }
            result => result,
        }
    }

    /// Whether overlayfs now shows a copy of the file that the process has mapped. `file` is the file that
    /// overlayfs shows; the caller may have opened it at any time.
    pub fn is_copied(&self, process: &Process, file: &File) -> bool {
        // If `file` was opened before overlayfs made the copy, it still maps the original. So we open it
        // again.
        let now = || File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
        overlay::is_overlay(file)
            && now().is_some_and(|now| is_behind(process, &self.ranges, &now) == Some(false))
    }

    /// Opens the file through /proc/PID/map_files. This entry leads to the mapped file itself, except on
    /// overlayfs.
    fn open_range(&self, process: &Process, range: MappedRange) -> io::Result<File> {
        let name = format!("map_files/{:x}-{:x}", range.start.0, range.end.0);
        let place = process.directory.open_entry(&name, OFlags::PATH)?;
        Ok(open_regular(place.as_fd())?)
    }

    /// Returns `merged` itself if the range maps `merged`, and the lower file if overlayfs has copied that
    /// file since. Returns `None` if another mapping is there by now.
    fn open_below(
        &self,
        process: &Process,
        range: MappedRange,
        merged: File,
        is_it: bool,
    ) -> Result<Option<OpenFile>, MappedFileError> {
        // All pages of the first range's code may be copies: a debugger or a probe makes copies. The pages of
        // other ranges are seldom written to.
        let others = self.ranges.iter().copied().filter(|other| *other != range);
        let ranges: Vec<MappedRange> = std::iter::once(range).chain(others).collect();
        let is_shown = is_behind(process, &ranges, &merged);
        if is_it && is_shown != Some(false) {
            return Ok(Some(OpenFile { file: merged, elsewhere: None }));
        }
        if is_shown == Some(true) {
            return Ok(None);
        }
        // A mapping has the inode number of the lower file before Linux 6.8, and later that of the file which
        // overlayfs shows.
        let is_mapped = |file: &File| match is_behind(process, &ranges, file) {
            Some(is_behind) => is_behind && (is_it || self.identity.is_of(file).unwrap_or(false)),
            None => self.identity.is_of(file).unwrap_or(false),
        };
        let shown = self.shown.as_os_str().as_bytes();
        let shown = Path::new(OsStr::from_bytes(shown.strip_suffix(DELETED).unwrap_or(shown)));
        match overlay::lower_file(process, &merged, [&self.path_in_process, shown], is_mapped) {
            Ok(found) => Ok(Some(OpenFile { file: found.file, elsewhere: found.path })),
            Err(error) => {
                let (pid, path) = (process.pid(), self.path_in_process.clone());
                Err(MappedFileError::CopiedUp { pid, path, error })
            }
        }
    }

    /// Opens the file through the process's root directory, or else by our own path.
    fn open_by_name(&self, process: &Process) -> Result<OpenFile, MappedFileError> {
        let (pid, path) = (process.pid(), self.path_in_process.clone());
        let mut another = false;
        let mut failure = None;
        for candidate in [process.open_file(&self.path_in_process), self.open_as_shown(process)] {
            match candidate.and_then(|file| Ok((self.identity.is_of(&file)?, file))) {
                Ok((true, file)) => return Ok(OpenFile { file, elsewhere: None }),
                Ok((false, _)) => another = true,
                // A device, a directory or a pipe has the name now. A device such as /dev/zero already had
                // this name when the process mapped it.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failure = Some(error),
            }
        }
        Err(match failure {
            Some(source) => MappedFileError::Io { pid, path, source },
            None if another => MappedFileError::Replaced { pid, path },
            None => MappedFileError::Nameless { pid, path },
        })
    }

    /// Opens the path as the kernel showed it. This finds a file whose name really ends in ` (deleted)`, and
    /// a file outside the process's root.
    fn open_as_shown(&self, process: &Process) -> io::Result<File> {
        if self.shown == self.path_in_process {
            return Err(Errno::NOENT.into());
        }
        if self.shown.as_os_str().as_bytes().ends_with(DELETED) {
            return process.open_file(&self.shown);
        }
        let place = rustix::fs::open(&self.shown, OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
        Ok(open_regular(place.as_fd())?)
    }
}

impl FileIdentity {
    /// The device and inode number that stat(2) returns.
    pub fn by_stat(metadata: &Metadata) -> Self {
        let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        Self { device, inode: metadata.ino() }
    }

    /// Whether an open file is the mapped file.
    fn is_of(self, file: &File) -> io::Result<bool> {
        if Self::by_stat(&file.metadata()?) == self {
            return Ok(true);
        }
        // stat(2) may return other numbers than /proc/PID/maps. So we map the file and read the numbers of
        // that mapping.
        Ok(Self::when_mapped(file)? == Some(self))
    }

    fn when_mapped(file: &File) -> io::Result<Option<Self>> {
        let mapping = UnreadMap::new(file, 0, 1)?;
        let address = VirtualAddress(mapping.address() as u64);
        let text = std::fs::read("/proc/self/maps")?;
        let line = maps::lines(&text).filter_map(Result::ok).find(|line| line.start == address);
        Ok(line.map(|line| Self { device: line.device, inode: line.inode }))
    }
}

impl OpenFile {
    /// A path that leads to this file whatever happens to the file's name. The path is valid in this process
    /// only, while this value lives. We can pass it to `perf_event_open` and to BPF links.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Whether the file begins with the ELF magic number.
    pub fn is_elf(&self) -> bool {
        let mut magic = [0; 4];
        self.file.read_exact_at(&mut magic, 0).is_ok() && magic == object::elf::ELFMAG
    }

    /// The file, for reading and mapping.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Our own path to this file, if the process's path leads to another file.
    pub fn elsewhere(&self) -> Option<&Path> {
        self.elsewhere.as_deref()
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_recognised_by_stat_and_by_its_mapping() {
        let file = File::open("/proc/self/exe").unwrap();
        let identity = FileIdentity::when_mapped(&file).unwrap().unwrap();
        assert!(identity.is_of(&file).unwrap());
        let other = FileIdentity { inode: identity.inode.wrapping_add(1), ..identity };
        assert!(!other.is_of(&file).unwrap());
    }
}
