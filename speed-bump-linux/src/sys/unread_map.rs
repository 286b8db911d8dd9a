//! Mappings that nobody reads or writes: they give a place in a file an address in this process.
//!
//! Whoever may write the file may cut it, and what touches memory beyond its end dies of SIGBUS. So there is
//! no way to that memory here.

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
    pub fn of(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choosing, which no reference of ours ever leads
        // to.
        let address = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), offset)?
        };
        Ok(Self { address: address.addr(), length })
    }

    /// First address of the mapping.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Its length in bytes, as it was asked for.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for UnreadMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to.
        let unmapped = unsafe { munmap(std::ptr::without_provenance_mut(self.address), self.length) };
        // It fails for what is not mapped, and this is.
        let _ = unmapped;
    }
}
