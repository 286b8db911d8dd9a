//! The memory of the program that a process runs now. This value never reaches a program that the process
//! executes later.
//!
//! Facts about a program, such as the address of its C library, are true of that program only. An open
//! /proc/PID/mem also belongs to the program. Once the process has executed another program, every read there
//! fails.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use super::InjectError;
use crate::{process::Process, units::VirtualAddress};

/// The memory of one program.
#[derive(Debug)]
pub(super) struct AddressSpace {
    file: File,
}

impl AddressSpace {
    /// Opens the memory of the program that the process runs now.
    pub(super) fn open(process: &Process) -> Result<Self, InjectError> {
        Ok(Self { file: process.memory_to_write()? })
    }

    /// Whether the program is gone, because the process has ended or executed another one. `mapped` must be
    /// an address in the program.
    pub(super) fn is_gone(&self, mapped: VirtualAddress) -> bool {
        // If the address were unmapped, this read would fail even while the program is there.
        matches!(self.file.read_at(&mut [0], mapped.0), Ok(0))
    }

    /// Reads the whole range.
    pub(super) fn read(&self, address: VirtualAddress, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, address.0)
    }

    /// Writes the whole range; `WriteZero` if the program is gone.
    pub(super) fn write(&self, address: VirtualAddress, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address.0)
    }
}
