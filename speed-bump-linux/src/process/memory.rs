//! Reading a process's memory.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::units::{Pid, VirtualAddress};

/// The memory of a process, for as long as the process runs the program that it ran when we opened this.
/// After an exec or an exit every read fails. So an address of the old program never reads bytes of the new
/// program.
#[derive(Debug)]
pub struct Memory {
    pid: Pid,
    file: File,
}

/// Why memory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The address, or one after it, is not mapped, or belongs to a device.
    #[error("process {pid}: no readable memory at {address} ({read} of {wanted} bytes read)")]
    Unmapped {
        /// PID of the process whose memory we read.
        pid: Pid,
        /// The first address that could not be read.
        address: VirtualAddress,
        /// The number of bytes read before that address.
        read: usize,
        /// The number of bytes asked for.
        wanted: usize,
    },
    /// The process has ended or has replaced its program.
    #[error("process {pid} has ended or replaced its program (exec): its former memory is gone")]
    Gone {
        /// PID of the process whose memory we read.
        pid: Pid,
    },
    /// Another error.
    #[error("process {pid}: reading memory at {address}: {source}")]
    Io {
        /// PID of the process whose memory we read.
        pid: Pid,
        /// The address where the failed read began.
        address: VirtualAddress,
        /// The system's error.
        r#source: io::Error,
    },
}

impl Memory {
    pub(super) fn new(pid: Pid, file: File) -> Self {
        Self { pid, file }
    }

    /// Fills `buffer` with the memory from `address` on.
    pub fn read_exact(&self, address: VirtualAddress, buffer: &mut [u8]) -> Result<(), MemoryError> {
        let (pid, wanted) = (self.pid, buffer.len());
        let mut read = 0;
        while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
            let unmapped = |address| MemoryError::Unmapped { pid, address, read, wanted };
            let Some(at) = address.0.checked_add(read as u64).filter(|at| i64::try_from(*at).is_ok()) else {
                // The upper half of the addresses is the kernel's; pread refuses these as negative offsets.
                return Err(unmapped(VirtualAddress(address.0.saturating_add(read as u64))));
            };
            let at = VirtualAddress(at);
            match self.file.read_at(rest, at.0) {
                // The kernel returns end-of-file only after it has freed the address space.
                Ok(0) => return Err(MemoryError::Gone { pid }),
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EIO) => return Err(unmapped(at)),
                Err(source) => return Err(MemoryError::Io { pid, address: at, source }),
            }
        }
        Ok(())
    }

    /// The 8 bytes at `address`, in this machine's byte order.
    pub fn read_u64(&self, address: VirtualAddress) -> Result<u64, MemoryError> {
        let mut bytes = [0; 8];
        self.read_exact(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Whether the memory is gone: the process has ended, or has executed another program.
    pub fn is_gone(&self) -> bool {
        // Nothing is mapped at address 0, so a read of memory that still exists returns an error.
        matches!(self.read_exact(VirtualAddress(0), &mut [0]), Err(MemoryError::Gone { .. }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn own() -> Memory {
        let pid = Pid::new(std::process::id().cast_signed()).unwrap();
        Memory::new(pid, File::open("/proc/self/mem").unwrap())
    }

    #[test]
    fn bytes_are_read_where_they_lie() {
        let value = 0x0123_4567_89ab_cdef_u64;
        let address = VirtualAddress(&raw const value as u64);
        assert_eq!(own().read_u64(address).unwrap(), value);
    }

    #[test]
    fn it_is_gone_with_the_program() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::new(child.id().cast_signed()).unwrap();
        let memory = Memory::new(pid, File::open(format!("/proc/{pid}/mem")).unwrap());
        assert!(!memory.is_gone());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(memory.is_gone());
    }

    #[test]
    fn holes_are_named() {
        for address in [0, 8, u64::MAX - 3, 1 << 63] {
            let error = own().read_u64(VirtualAddress(address)).unwrap_err();
            assert!(matches!(error, MemoryError::Unmapped { read: 0, wanted: 8, .. }), "{error}");
        }
    }
}
