//! A BPF array that is mapped into our memory. We read or write an element in nanoseconds and without a
//! system call.
//!
//! The array keeps its size while it is mapped (kernel/bpf/arraymap.c, `array_map_mmap`, kernel 5.5), so no
//! access can raise SIGBUS.

use std::{io, os::fd::AsFd, ptr::NonNull, slice, sync::atomic::AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapped BPF array of words. BPF programs read and write the words at the same time.
#[derive(Debug)]
pub struct MappedWords {
    words: NonNull<AtomicU64>,
    length: usize,
}

// SAFETY: the mapping belongs to no thread, and every access to it is atomic.
unsafe impl Send for MappedWords {}
// SAFETY: see `Send`.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Maps the first `length` words of an array that was created with `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// The error of `mmap`: `EINVAL` for an array that is shorter, or that cannot be mapped.
    pub fn of_array(array: impl AsFd, length: usize) -> io::Result<Self> {
        let bytes = length.checked_mul(size_of::<AtomicU64>()).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this makes a new mapping, and the kernel chooses its place.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, array.as_fd(), 0)? };
        let words = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { words, length })
    }

    /// All words of the mapping.
    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: memory of this length is mapped there, aligned to a page, until this value is dropped. A
        // BPF program's access is like an atomic access of another thread.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.length) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping, and no reference to it is left.
        let unmapped = unsafe { munmap(self.words.as_ptr().cast(), self.length * size_of::<AtomicU64>()) };
        // The call fails only for memory that is not mapped, and this memory is mapped.
        let _ = unmapped;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn words_are_those_of_the_file_and_no_more() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let (ours, theirs) = [(); 2].map(|()| MappedWords::of_array(&file, 7).unwrap()).into();
        ours.all()[6].store(5, Ordering::Release);
        assert_eq!(theirs.all().iter().map(|word| word.load(Ordering::Acquire)).sum::<u64>(), 5);
        assert_eq!(theirs.all().len(), 7);
        assert!(MappedWords::of_array(&file, 0).is_err());
        assert!(MappedWords::of_array(&file, usize::MAX).is_err());
    }
}
