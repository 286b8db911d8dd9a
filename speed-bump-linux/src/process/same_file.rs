//! Checks whether an open file is the one behind a mapping. This compares pages, not names or numbers.
//!
//! When overlayfs copies a file, the path, /proc/PID/exe and map_files lead to the copy. A process that runs
//! the file still maps the original. Both files have the same inode number, but the process maps only the
//! original's pages.

use std::fs::File;

use rustix::fs::OFlags;

use super::{Process, mappings::MappedRange};
use crate::{
    sys::page_frames::{self, PageEntry, page_bytes},
    units::VirtualAddress,
};

/// The most pages of a mapping that we look at. Among them we search for pages that are in memory and are not
/// copies.
const LOOKED_AT: u64 = 512;
/// The most pages that we compare.
const COMPARED: usize = 4;

/// Whether a mapping's pages are the pages of this file. The answer comes from the first range that gives
/// one. Returns `None` if no range does: we lack CAP_SYS_ADMIN, or the process has its own copy of every
/// page.
pub(super) fn is_behind(process: &Process, ranges: &[MappedRange], file: &File) -> Option<bool> {
    ranges.iter().find_map(|range| is_behind_range(process, *range, file))
}

fn is_behind_range(process: &Process, range: MappedRange, file: &File) -> Option<bool> {
    let pagemap = File::from(process.directory.open_entry("pagemap", OFlags::RDONLY).ok()?);
    let mut differs = None;
    for index in pages_of_file(process, &pagemap, range)?.into_iter().take(COMPARED) {
        let place = VirtualAddress(range.start.0 + index * page_bytes());
        let theirs = || page_frames::entries(&pagemap, place, 1).ok()?.first()?.frame();
        let before = theirs();
        // If the file lacks this page, it is another file.
        let Ok(ours) = page_frames::of_file(file, range.offset.0.checked_add(index * page_bytes())?) else {
            return Some(false);
        };
        if before.is_none() || ours.frame().is_none() || theirs() != before {
            // The kernel hides the frame's number, or has moved the page or swapped it out meanwhile.
            continue;
        }
        if before == ours.frame() {
            return Some(true);
        }
        differs = Some(false);
    }
    differs
}

/// The positions, in pages, where the range has a page of a file in memory.
fn pages_of_file(process: &Process, pagemap: &File, range: MappedRange) -> Option<Vec<u64>> {
    let pages = ((range.end.0 - range.start.0) / page_bytes()).min(LOOKED_AT);
    let look = || -> Option<Vec<u64>> {
        let entries = page_frames::entries(pagemap, range.start, usize::try_from(pages).ok()?).ok()?;
        let found = (0..).zip(&entries).filter(|(_, entry): &(u64, &PageEntry)| entry.is_of_file());
        Some(found.map(|(index, _)| index).collect())
    };
    let found = look()?;
    if !found.is_empty() {
        return Some(found);
    }
    // No page is in memory. If we read one, the kernel loads it.
    process.memory().ok()?.read_exact(range.start, &mut [0]).ok()?;
    look()
}
