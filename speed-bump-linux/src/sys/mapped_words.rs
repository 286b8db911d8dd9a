//! A BPF array, mapped into our memory: reading or writing an element takes nanoseconds and no system call.
//!
//! Such an array keeps its size while it is mapped (kernel/bpf/arraymap.c, `array_map_mmap`, kernel 5.5), so
//! no access can raise SIGBUS.

use std::{io, os::fd::AsFd, ptr::NonNull, slice, sync::atomic::AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A BPF array of words, mapped. BPF programs read and write them at the same time.
#[derive(Debug)]
pub struct MappedWords {
    words: NonNull<AtomicU64>,
    length: usize,
}

// SAFETY: the mapping belongs to no thread, and every access to it is atomic.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Maps the first `length` words of an array that was created with `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// The error of `mmap`: `EINVAL` for an array that is shorter, or cannot be mapped.
    pub fn of_array(array: impl AsFd, length: usize) -> io::Result<Self> {
        let bytes = length.checked_mul(size_of::<AtomicU64>()).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choosing.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, array.as_fd(), 0)? };
        let words = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { words, length })
    }

    /// All words.
    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: mapped, aligned to a page, and of this length, until this is dropped. An access by a BPF
        // program is like any other thread's atomic access.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.length) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        let unmapped = unsafe { munmap(self.words.as_ptr().cast(), self.length * size_of::<AtomicU64>()) };
        // It fails only for memory that is not mapped, and this is.
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
