//! Wakes threads that wait on a futex in a file that several processes map.

use std::{fs::File, io, sync::atomic::AtomicU32};

use super::unread_map::UnreadMap;

/// The first bytes of a shared file. We map them only to give the file's futexes an address in this process,
/// because the kernel finds a futex by its address. It would be dangerous to read or write the memory itself.
#[derive(Debug)]
pub struct FutexPage {
    map: UnreadMap,
}

impl FutexPage {
    /// Maps the first `length` bytes of a file.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn map(file: &File, length: usize) -> io::Result<Self> {
        Ok(Self { map: UnreadMap::new(file, 0, length)? })
    }

    /// Wakes all threads that wait on the futex at this offset, in any process.
    ///
    /// # Errors
    /// `InvalidInput` for an offset that is outside the page or that four does not divide; otherwise the
    /// error of `futex`.
    pub fn wake_all(&self, offset: usize) -> io::Result<()> {
        let fits = offset.checked_add(size_of::<AtomicU32>()).is_some_and(|end| end <= self.map.length());
        if !fits || !offset.is_multiple_of(align_of::<AtomicU32>()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the kernel takes the address as a name, and neither reads nor writes there (futex(2),
        // FUTEX_WAKE). If nothing is mapped at the address, the call returns an error.
        let woken = unsafe {
            libc::syscall(libc::SYS_futex, self.map.address() + offset, libc::FUTEX_WAKE, i32::MAX)
        };
        if woken < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{sync::mpsc, thread, time::Duration};

    use memmap2::MmapOptions;
    use rustix::thread::futex;

    use super::*;

    #[test]
    fn who_waits_on_another_mapping_is_woken() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let page = FutexPage::map(&file, 4096).unwrap();
        let theirs = MmapOptions::new().len(4096).map_raw(&file).unwrap();
        let (woken, wakes) = mpsc::channel();
        let waiter = thread::spawn(move || {
            // SAFETY: the word is mapped and aligned, and the file keeps its length.
            let word = unsafe { &*theirs.as_ptr().add(8).cast::<AtomicU32>() };
            futex::wait(word, futex::Flags::empty(), 0, None).unwrap();
            woken.send(()).unwrap();
        });
        while wakes.recv_timeout(Duration::from_millis(5)).is_err() {
            page.wake_all(8).unwrap();
        }
        waiter.join().unwrap();
    }

    #[test]
    fn offsets_outside_are_refused_and_a_truncated_file_does_no_harm() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let page = FutexPage::map(&file, 4096).unwrap();
        for offset in [2, 4094, 4096, usize::MAX] {
            assert_eq!(page.wake_all(offset).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        file.set_len(0).unwrap();
        assert!(page.wake_all(8).is_err());
    }
}
