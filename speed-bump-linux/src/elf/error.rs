//! Why an ELF file cannot be used.

use std::{io, path::PathBuf};

use super::{effort::Exhausted, machine::Machine};

/// An ELF file that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", .path.display())]
pub struct ElfError {
    /// The file as the caller named it, or a description for bytes that have no file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub kind: ElfErrorKind,
}

/// What is wrong with an ELF file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfErrorKind {
    /// The file cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    /// The system failed while reading.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// A directory, device, pipe or socket; it was not opened for reading.
    #[error("is a {0}, not a regular file; name the ELF file itself")]
    Special(&'static str),
    /// A file that the kernel makes up; it was not opened for reading.
    #[error("is a file of {0}, which the kernel makes up when it is read; name the ELF file itself")]
    MadeUp(&'static str),
    /// It does not begin with the ELF magic number.
    #[error(
        "is not an ELF file; name an executable or a shared library (scripts have none: name their \
         interpreter)"
    )]
    NotElf,
    /// An ELF magic number, or nothing at all, but no whole header.
    #[error("is too short for an ELF file: {length} bytes, where the header alone has 64")]
    TooShort {
        /// Size of the file in bytes.
        length: u64,
    },
    /// ELFCLASS32, x32 included.
    #[error("is a 32-bit file; only 64-bit processes are supported")]
    Class32,
    /// ELFDATA2MSB.
    #[error("is a big-endian file; no supported machine runs it")]
    BigEndian,
    /// For a machine other than this one.
    #[error("is for machine {found:#x} (EM_*), this machine is {}", host_name(*.host))]
    WrongMachine {
        /// `e_machine` of the file.
        found: u16,
        /// The machine we run on, if supported at all.
        host: Option<Machine>,
    },
    /// Neither an executable nor a shared library: object file, core dump, kernel module.
    #[error("is {0}; no process maps such a file to run it: name the executable or shared library")]
    NotLoadable(&'static str),
    /// A table or segment reaches beyond the end of the file.
    #[error(
        "is truncated: its {what} ends at byte {end}, the file at byte {length}; reinstall or rebuild it"
    )]
    Truncated {
        /// What is cut.
        what: &'static str,
        /// Where it should end, in bytes.
        end: u64,
        /// Size of the file, in bytes.
        length: u64,
    },
    /// The contents violate the format.
    #[error("is corrupt: {what}; reinstall or rebuild it")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
    },
    /// A table is larger than any real one.
    #[error("its {what} has {size} bytes, more than the {limit} that are read at most")]
    TooLarge {
        /// Which table.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The tables together are larger than a file with so little on disk can hold.
    #[error(
        "its tables up to the {what} claim {size} bytes, more than the {limit} that are read of a file \
         with so little on disk"
    )]
    Sparse {
        /// The table that exceeds the limit.
        what: &'static str,
        /// Bytes of this table and of those before.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Nearly all of it is holes, and we compute no checksum of those.
    #[error(
        "has {length} bytes, and {on_disk} of them on disk: no checksum is made of a file with so many \
         holes, and its symbols are not used"
    )]
    Holes {
        /// Size of the file in bytes.
        length: u64,
        /// What it takes on disk, in bytes.
        on_disk: u64,
    },
    /// Reading other files used up the time or the bytes.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// The file became shorter while we read it.
    #[error("changed while it was read; try again once its installation has finished")]
    Changed,
    /// A debug file that was found does not belong to the file.
    #[error(
        "does not belong to {main}: {why}; its symbols are not used (install the matching debug symbols)"
    )]
    WrongDebugFile {
        /// The file that we looked it up for.
        main: String,
        /// Which check failed.
        why: &'static str,
    },
    /// `.gnu_debugdata` that cannot be unpacked.
    #[error("its .gnu_debugdata cannot be unpacked: {0}; the symbols in it are not used")]
    MiniDebugInfo(String),
}

fn host_name(host: Option<Machine>) -> String {
    host.map_or_else(|| "not supported".to_owned(), |machine| machine.to_string())
}
