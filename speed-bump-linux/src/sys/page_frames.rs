//! Which page of physical memory is behind an address: /proc/PID/pagemap
//! (Documentation/admin-guide/mm/pagemap.rst).
//!
//! All processes that map a file share the file's pages. So two addresses with the same frame belong to one
//! file, whatever paths and inode numbers say. Since Linux 4.2, the kernel shows the numbers of frames only
//! with CAP_SYS_ADMIN.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt as _},
};

use super::unread_map::UnreadMap;
use crate::units::VirtualAddress;

/// Bytes of an entry in pagemap.
const ENTRY_BYTES: u64 = 8;

/// An entry of pagemap: the state of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry(u64);

impl PageEntry {
    const FRAME: u64 = (1 << 55) - 1;
    const OF_FILE: u64 = 1 << 61;
    const PRESENT: u64 = 1 << 63;

    /// Whether a file's page is in memory at this address, and is not a copy.
    pub fn is_of_file(self) -> bool {
        self.0 & Self::PRESENT != 0 && self.0 & Self::OF_FILE != 0
    }

    /// The frame of the file's page at this address. Returns `None` if no such page is in memory, or if the
    /// kernel hides the frame from us.
    pub fn frame(self) -> Option<u64> {
        Some(self.0 & Self::FRAME).filter(|frame| self.is_of_file() && *frame != 0)
    }
}

/// The size of a page, in bytes.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Reads a process's pagemap entries for `pages` pages from an address on. There are fewer entries if the
/// address space ends earlier.
///
/// # Errors
/// The system's error, or nothing could be read because the process's memory ends here.
pub fn entries(pagemap: &File, start: VirtualAddress, pages: usize) -> io::Result<Vec<PageEntry>> {
    let mut bytes = vec![0; pages.saturating_mul(ENTRY_BYTES as usize)];
    let read = pagemap.read_at(&mut bytes, start.0 / page_bytes() * ENTRY_BYTES)?;
    let entries = bytes.get(..read).unwrap_or_default().chunks_exact(ENTRY_BYTES as usize);
    Ok(entries.filter_map(|entry| entry.try_into().ok().map(u64::from_ne_bytes).map(PageEntry)).collect())
}

/// The page that is behind an offset of a file when we map the file. `offset` is a multiple of the page size.
///
/// # Errors
/// We cannot map the file, or the file ends before that page.
pub fn of_file(file: impl AsFd, offset: u64) -> io::Result<PageEntry> {
    let page = UnreadMap::new(file, offset, rustix::param::page_size())?;
    // We read the page through /proc. Then the kernel loads the page, or reports that there is none.
    File::open("/proc/self/mem")?.read_exact_at(&mut [0], page.address() as u64)?;
    let pagemap = File::open("/proc/self/pagemap")?;
    let entry = entries(&pagemap, VirtualAddress(page.address() as u64), 1)?.first().copied();
    entry.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use super::*;

    #[test]
    fn one_page_of_a_file_is_one_frame_and_a_copy_is_another() {
        let mut files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        for file in &mut files {
            file.write_all(&vec![7; usize::try_from(page_bytes()).unwrap()]).unwrap();
        }
        let frames = [&files[0], &files[0], &files[1]].map(|file| of_file(file, 0).unwrap());
        assert!(frames.iter().all(|entry| entry.is_of_file()));
        if rustix::process::geteuid().is_root() {
            assert!(frames[0].frame().is_some());
            assert_eq!(frames[0].frame(), frames[1].frame());
            assert_ne!(frames[0].frame(), frames[2].frame());
        }
    }

    #[test]
    fn beyond_the_end_of_a_file_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        assert!(of_file(&file, 0).is_err());
    }
}
