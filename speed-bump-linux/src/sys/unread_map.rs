//! Mappings that we never read or write. A mapping gives a place in a file an address in this process.
//!
//! Any process that may write to the file may also truncate it, and an access beyond the end of the file
//! raises SIGBUS. So this type gives no access to the memory.

use std::{io, os::fd::AsFd};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapped part of a file.
#[derive(Debug)]
pub struct UnreadMap {
    /// The address is not a pointer, so that no code reads through it.
    address: usize,
    length: usize,
}

impl UnreadMap {
    /// Maps `length` bytes of a file, beginning at `offset`. `offset` is a multiple of the page size.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn new(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        // SAFETY: this makes a new mapping, and the kernel chooses its place. We never make a reference to
        // it.
        let address = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), offset)?
        };
        Ok(Self { address: address.addr(), length })
    }

    /// The address of the mapping.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The length in bytes that the caller asked for.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for UnreadMap {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping, and nothing refers to it.
        let unmapped = unsafe { munmap(std::ptr::without_provenance_mut(self.address), self.length) };
        // The call fails only for memory that is not mapped, and this memory is mapped.
        let _ = unmapped;
    }
}
