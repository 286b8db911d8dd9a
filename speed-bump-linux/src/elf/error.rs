//! The reasons why we cannot use an ELF file.

use std::{io, path::PathBuf};

use super::{effort::Exhausted, machine::Machine};

/// An ELF file that we cannot use, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", .path.display())]
pub struct ElfError {
    /// The path of the file as the caller gave it, or a description of bytes without a file.
    pub path: PathBuf,
    /// Why we cannot use the file.
    pub kind: ElfErrorKind,
}

/// Why we cannot use an ELF file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfErrorKind {
    /// We cannot open the file.
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    /// The system failed to read the file.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// The path is a directory, device, pipe or socket. We did not open it for reading.
    #[error("is a {0}, not a regular file; name the ELF file itself")]
    Special(&'static str),
    /// The kernel generates the contents of this file. We did not open it for reading.
    #[error("is a file of {0}, which the kernel makes up when it is read; name the ELF file itself")]
    MadeUp(&'static str),
    /// The file does not begin with the ELF magic number.
    #[error(
        "is not an ELF file; name an executable or a shared library (scripts have none: name their \
         interpreter)"
    )]
    NotElf,
    /// The file is shorter than a header. It begins with the ELF magic number, or is empty.
    #[error("is too short for an ELF file: {length} bytes, where the header alone has 64")]
    TooShort {
        /// The size of the file in bytes.
        length: u64,
    },
    /// The file is ELFCLASS32; files of x32 are, too.
    #[error("is a 32-bit file; only 64-bit processes are supported")]
    Class32,
    /// The file is ELFDATA2MSB.
    #[error("is a big-endian file; no supported machine runs it")]
    BigEndian,
    /// The file is for another machine than this one.
    #[error("is for machine {found:#x} (EM_*), this machine is {}", host_name(*.host))]
    WrongMachine {
        /// The file's `e_machine`.
        found: u16,
        /// The machine on which we run, if it is supported.
        host: Option<Machine>,
    },
    /// The file is neither an executable nor a shared library, but an object file, a core dump or a kernel
    /// module.
    #[error("is {0}; no process maps such a file to run it: name the executable or shared library")]
    NotLoadable(&'static str),
    /// A table or segment reaches beyond the end of the file.
    #[error(
        "is truncated: its {what} ends at byte {end}, the file at byte {length}; reinstall or rebuild it"
    )]
    Truncated {
        /// The part that is cut off.
        what: &'static str,
        /// The offset at which this part should end, in bytes.
        end: u64,
        /// The size of the file in bytes.
        length: u64,
    },
    /// The contents of the file violate the format.
    #[error("is corrupt: {what}; reinstall or rebuild it")]
    Corrupt {
        /// In what way.
        what: &'static str,
    },
    /// A table is larger than any table of a real program.
    #[error("its {what} has {size} bytes, more than the {limit} that are read at most")]
    TooLarge {
        /// The table.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The tables together are larger than what the file has on disk.
    #[error(
        "its tables up to the {what} claim {size} bytes, more than the {limit} that are read of a file \
         with so little on disk"
    )]
    Sparse {
        /// The table that exceeds the limit.
        what: &'static str,
        /// The total size of this table and of the tables before it, in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Nearly all of the file is holes. We compute no checksum of holes.
    #[error(
        "has {length} bytes, and {on_disk} of them on disk: no checksum is made of a file with so many \
         holes, and its symbols are not used"
    )]
    Holes {
        /// The size of the file in bytes.
        length: u64,
        /// The bytes that the file takes on disk.
        on_disk: u64,
    },
    /// Other files have used up the reading time, or the bytes for checksums.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// The file became shorter while we read it.
    #[error("changed while it was read; try again once its installation has finished")]
    Changed,
    /// This debug file does not belong to the file.
    #[error(
        "does not belong to {main}: {why}; its symbols are not used (install the matching debug symbols)"
    )]
    WrongDebugFile {
        /// The file for which we searched a debug file.
        main: String,
        /// The check that failed.
        why: &'static str,
    },
    /// We cannot unpack `.gnu_debugdata`.
    #[error("its .gnu_debugdata cannot be unpacked: {0}; the symbols in it are not used")]
    MiniDebugInfo(String),
}

fn host_name(host: Option<Machine>) -> String {
    host.map_or_else(|| "not supported".to_owned(), |machine| machine.to_string())
}
