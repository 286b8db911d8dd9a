//! Fuzzes the /proc files of a process. The kernel writes them, but the process chooses the names in them.

use std::path::Path;

use super::Input;
use crate::{
    process::{Mappings, SignalMasks, region, stat::Stat, status::Status},
    units::{FileOffset, VirtualAddress},
};

/// Any bytes as /proc/PID/maps. The first bytes choose one of several roots for the process, and an address
/// and an offset to look up.
pub fn maps(bytes: &[u8]) {
    let mut input = Input(bytes);
    let root = ["/", "/srv/jail", "/srv", ""][usize::from(input.byte() & 3)];
    let (address, offset) = (VirtualAddress(input.number()), FileOffset(input.number()));
    let regions = region::parse(input.0);
    let mappings = Mappings::parse(input.0, Path::new(root));
    assert_eq!(regions.is_ok(), mappings.is_ok());
    let (Ok(regions), Ok(mappings)) = (regions, mappings) else { return };
    let executable = regions.iter().filter(|region| region.executable);
    let listed: usize = mappings.files.iter().map(|file| file.executable_ranges().count()).sum();
    assert_eq!(executable.count(), listed + mappings.anonymous.len());
    for file in &mappings.files {
        assert!(file.ranges.iter().any(|range| range.executable));
        for found in file.addresses_of(offset) {
            assert!(file.executable_ranges().any(|range| (range.start..range.end).contains(&found)));
        }
        file.load_bias(offset, address);
    }
    for mapping in &mappings.anonymous {
        assert!(!mapping.is_the_kernels() || mapping.name.is_some());
        mapping.contains(address);
    }
    if let Some((file, offset)) = mappings.file_at(address) {
        assert!(file.ranges.iter().any(|range| range.offset_of(address) == Some(offset)));
    }
}

/// Any bytes as /proc/PID/status and /proc/PID/stat.
pub fn status(bytes: &[u8]) {
    if let Ok(status) = Status::parse(bytes) {
        assert_eq!(SignalMasks::parse(bytes), Some(status.signals));
    }
    if let Some(stat) = Stat::parse(bytes) {
        assert!(stat.comm.len() <= 3 * bytes.len());
    }
}
