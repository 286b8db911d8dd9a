//! The memory of the program that a process runs, and of no other that it may execute later.
//!
//! What is found out about a program, where its C library is for example, holds for that program only. An
//! open /proc/PID/mem belongs to it too: once the process has executed another, nothing can be read there any
//! more.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use super::InjectError;
use crate::{process::Process, units::VirtualAddress};

/// The memory of one program.
#[derive(Debug)]
pub(super) struct AddressSpace {
    file: File,
}

impl AddressSpace {
    /// Of the program that the process runs now.
    pub(super) fn open(process: &Process) -> Result<Self, InjectError> {
        Ok(Self { file: process.memory_to_write()? })
    }

    /// Whether the program is gone: the process has ended or executed another.
    pub(super) fn is_gone(&self, mapped: VirtualAddress) -> bool {
        // An address that is not mapped would be an error.
        matches!(self.file.read_at(&mut [0], mapped.0), Ok(0))
    }

    /// Reads all of it.
    pub(super) fn read(&self, address: VirtualAddress, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, address.0)
    }

    /// Writes all of it; `WriteZero` if the program is gone.
    pub(super) fn write(&self, address: VirtualAddress, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address.0)
    }
}
