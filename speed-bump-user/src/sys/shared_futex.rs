//! Waking who waits on a futex in a file that several processes map.

use std::{fs::File, io, sync::atomic::AtomicU32};

use memmap2::{MmapOptions, MmapRaw};
use rustix::thread::futex;

/// The first bytes of a shared file, mapped only so that futexes there have an address in this process.
///
/// Nothing is ever read or written through the mapping: whoever shares the file may truncate it, and what touches
/// memory beyond its end dies of SIGBUS. The kernel looks a futex up without such danger.
#[derive(Debug)]
pub struct FutexPage {
    map: MmapRaw,
    length: usize,
}

impl FutexPage {
    /// Maps the first `length` bytes.
    ///
    /// # Errors
    /// What `mmap` returns.
    pub fn map(file: &File, length: usize) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(length).map_raw(file)?, length })
    }

    /// Wakes all who wait on the futex at this offset, in whatever process.
    ///
    /// # Errors
    /// `InvalidInput` for an offset outside the page or not divisible by four; what `futex` returns.
    pub fn wake_all(&self, offset: usize) -> io::Result<()> {
        let fits = offset.checked_add(size_of::<AtomicU32>()).is_some_and(|end| end <= self.length);
        if !fits || !offset.is_multiple_of(align_of::<AtomicU32>()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the address lies in the mapping, which starts on a page and lives as long as `self`; it is aligned, and
        // neither side reads or writes through the reference: the kernel takes it as a name.
        let word = unsafe { &*self.map.as_ptr().add(offset).cast::<AtomicU32>() };
        futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn who_waits_on_another_mapping_is_woken() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let page = FutexPage::map(&file, 4096).unwrap();
        let theirs = MmapOptions::new().len(4096).map_raw(&file).unwrap();
        let (woken, wakes) = mpsc::channel();
        let waiter = thread::spawn(move || {
            // SAFETY: mapped, aligned, and the file keeps its length.
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
