//! Whether an open file is the one behind a mapping, told by the memory and by no name or number.
//!
//! Under overlayfs a path, /proc/PID/exe and map_files lead to the copy that was made of a file when it was
//! changed, while the process that runs it still maps the original; both bear one inode number. But only the
//! original's pages are the process's.

use std::fs::File;

use rustix::fs::OFlags;

use super::{Process, mappings::MappedRange};
use crate::{
    sys::page_frames::{self, PageEntry, page_bytes},
    units::VirtualAddress,
};

/// Pages of a mapping that are looked at for some that are in memory and not copied.
const LOOKED_AT: u64 = 512;
/// Pages that are compared.
const COMPARED: usize = 4;

/// Whether the pages of a mapping are this file's, told by the first of its ranges that tells. `None` where
/// none does: without CAP_SYS_ADMIN, or where the process has a copy of each page.
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
        // A file that has no such page is another one.
        let Ok(ours) = page_frames::of_file(file, range.offset.0.checked_add(index * page_bytes())?) else {
            return Some(false);
        };
        if before.is_none() || ours.frame().is_none() || theirs() != before {
            // It is hidden, or was moved or written out of memory meanwhile.
            continue;
        }
        if before == ours.frame() {
            return Some(true);
        }
        differs = Some(false);
    }
    differs
}

/// Positions, in pages, at which the range has pages of a file in memory.
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
    // None is in memory: reading brings one in.
    process.memory().ok()?.read_exact(range.start, &mut [0]).ok()?;
    look()
}
