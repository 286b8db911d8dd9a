//! Mappings that are never read or written: they give a place in a file an address in this process.
//!
//! Any process that may write the file may truncate it, and an access beyond its end raises SIGBUS. So this
//! type gives no access to the memory.

use std::{io, os::fd::AsFd};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A part of a file, mapped.
#[derive(Debug)]
pub struct UnreadMap {
    /// Not a pointer, so that nothing is read through it.
    address: usize,
    length: usize,
}

impl UnreadMap {
    /// Maps `length` bytes of a file from `offset` on, a multiple of the size of a page.
    ///
    /// # Errors
    /// What `mmap` returns.
    pub fn new(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses; no reference of ours ever leads to it.
        let address = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), offset)?
        };
        Ok(Self { address: address.addr(), length })
    }

    /// Its address.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Its length in bytes, as requested.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for UnreadMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to.
        let unmapped = unsafe { munmap(std::ptr::without_provenance_mut(self.address), self.length) };
        // It fails only for memory that is not mapped, and this is.
        let _ = unmapped;
    }
}
