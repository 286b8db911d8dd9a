//! All mappings of a process, of any kind.

use std::ffi::OsString;

use super::maps::{self, BadLine};
use crate::units::{FileOffset, VirtualAddress};

/// One line of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: VirtualAddress,
    /// First address after it.
    pub end: VirtualAddress,
    /// Whether the process may execute the region.
    pub executable: bool,
    /// The file offset where the region begins; 0 without a file.
    pub offset: FileOffset,
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// Inode of the file; 0 without a file.
    pub inode: u64,
    /// Path or name as the kernel shows it; empty for plain anonymous memory.
    pub name: OsString,
}

impl Region {
    /// Whether an address lies in this region.
    pub fn contains(&self, address: VirtualAddress) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Reads the regions from the text of /proc/PID/maps.
pub fn parse(text: &[u8]) -> Result<Vec<Region>, BadLine> {
    maps::lines(text)
        .map(|line| {
            let line = line?;
            Ok(Region {
                start: line.start,
                end: line.end,
                executable: line.executable,
                offset: line.offset,
                device: line.device,
                inode: line.inode,
                name: line.name.into_owned(),
            })
        })
        .collect()
}
