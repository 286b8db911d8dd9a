//! Loadable segments, and the translation between virtual addresses and file offsets.

use object::{LittleEndian, elf, read::elf::ProgramHeader as _};

use crate::units::{FileOffset, VirtualAddress};

/// One `PT_LOAD` segment of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first address, as in the file's headers (`p_vaddr`).
    pub address: VirtualAddress,
    /// The number of bytes in memory (`p_memsz`). The bytes beyond `file_size` are zeros, which the file does
    /// not contain.
    pub memory_size: u64,
    /// The offset of the first byte in the file (`p_offset`).
    pub offset: FileOffset,
    /// The number of bytes in the file (`p_filesz`).
    pub file_size: u64,
    /// `PF_X`.
    pub executable: bool,
    /// `PF_W`.
    pub writable: bool,
}

impl Segment {
    /// The file offset of an address. `None` if the address is outside of the segment, or its byte is not in
    /// the file.
    pub(super) fn offset_of(&self, address: VirtualAddress) -> Option<FileOffset> {
        let distance = address.0.checked_sub(self.address.0)?;
        (distance < self.file_size).then(|| FileOffset(self.offset.0 + distance))
    }

    fn address_of(&self, offset: FileOffset) -> Option<VirtualAddress> {
        let distance = offset.0.checked_sub(self.offset.0)?;
        (distance < self.file_size).then(|| VirtualAddress(self.address.0 + distance))
    }
}

/// The number that the dynamic loader added to the addresses of a file: process address = file address +
/// bias. The number is 0 for executables that are not position-independent. The sum may wrap around, as in
/// the loader itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadBias(pub u64);

impl LoadBias {
    /// Translates an address in the file to an address in the process.
    pub fn to_process(self, address: VirtualAddress) -> VirtualAddress {
        VirtualAddress(address.0.wrapping_add(self.0))
    }

    /// Translates an address in the process to an address in the file.
    pub fn to_file(self, address: VirtualAddress) -> VirtualAddress {
        VirtualAddress(address.0.wrapping_sub(self.0))
    }
}

/// The `PT_LOAD` segments of a file, in the order of its program headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Takes the `PT_LOAD` segments; `None` if one wraps around the address space or the file.
    pub(super) fn from_headers(headers: &[elf::ProgramHeader64<LittleEndian>]) -> Option<Self> {
        let loads = headers.iter().filter(|header| header.p_type(LittleEndian) == elf::PT_LOAD);
        let segments: Option<Vec<_>> = loads
            .map(|header| {
                let segment = Segment {
                    address: VirtualAddress(header.p_vaddr(LittleEndian)),
                    memory_size: header.p_memsz(LittleEndian),
                    offset: FileOffset(header.p_offset(LittleEndian)),
                    file_size: header.p_filesz(LittleEndian),
                    executable: header.p_flags(LittleEndian) & elf::PF_X != 0,
                    writable: header.p_flags(LittleEndian) & elf::PF_W != 0,
                };
                segment.address.0.checked_add(segment.memory_size.max(segment.file_size))?;
                segment.offset.0.checked_add(segment.file_size)?;
                Some(segment)
            })
            .collect();
        segments.map(Self)
    }

    /// The `PT_LOAD` segments, in the order of the program headers.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter()
    }

    /// The segment whose memory contains an address. The address need not be in the file.
    pub fn containing(&self, address: VirtualAddress) -> Option<&Segment> {
        self.0.iter().find(|segment| {
            address.0.checked_sub(segment.address.0).is_some_and(|distance| distance < segment.memory_size)
        })
    }

    /// The file offset of an address; `None` if no segment has loaded the address from the file.
    pub fn offset_of(&self, address: VirtualAddress) -> Option<FileOffset> {
        self.0.iter().find_map(|segment| segment.offset_of(address))
    }

    /// The file offset of an address in an executable segment.
    pub fn code_offset_of(&self, address: VirtualAddress) -> Option<FileOffset> {
        self.0.iter().filter(|segment| segment.executable).find_map(|segment| segment.offset_of(address))
    }

    /// The file offset of an address in a writable segment.
    pub fn data_offset_of(&self, address: VirtualAddress) -> Option<FileOffset> {
        self.0.iter().filter(|segment| segment.writable).find_map(|segment| segment.offset_of(address))
    }

    /// The address of a byte in the file. If several segments contain the byte, an executable segment has
    /// precedence.
    pub fn address_of(&self, offset: FileOffset) -> Option<VirtualAddress> {
        self.code_address_of(offset).or_else(|| self.0.iter().find_map(|segment| segment.address_of(offset)))
    }

    /// The address of a byte in the file, if an executable segment contains it.
    pub fn code_address_of(&self, offset: FileOffset) -> Option<VirtualAddress> {
        self.0.iter().filter(|segment| segment.executable).find_map(|segment| segment.address_of(offset))
    }

    /// The load bias that follows from a line of `/proc/PID/maps`. `start` and `offset` are from this line,
    /// and `executable` says whether the line has an `x`.
    ///
    /// The kernel maps whole pages, so a line may begin up to a page before its segment. The loader splits
    /// segments (RELRO), so a line may also begin inside a segment. If two segments of one kind share a page
    /// of the file, we assume that the line is for the first segment. So callers should prefer the lowest
    /// line of a file.
    pub fn bias_of_mapping(
        &self,
        start: VirtualAddress,
        offset: FileOffset,
        executable: bool,
    ) -> Option<LoadBias> {
        let page = rustix::param::page_size() as u64;
        let covering = self.0.iter().filter(|segment| segment.executable == executable).find(|segment| {
            let first = segment.offset.0 & !(page - 1);
            first <= offset.0 && offset.0 < segment.offset.0 + segment.file_size
        })?;
        // In a mapping, address and offset agree modulo the page size. So the difference of the offsets leads
        // from the segment to the start of the line.
        let address = covering.address.0.wrapping_add(offset.0.wrapping_sub(covering.offset.0));
        Some(LoadBias(start.0.wrapping_sub(address)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn segment(address: u64, offset: u64, size: u64, executable: bool, writable: bool) -> Segment {
        Segment {
            address: VirtualAddress(address),
            memory_size: size + 0x100 * u64::from(writable),
            offset: FileOffset(offset),
            file_size: size,
            executable,
            writable,
        }
    }

    /// lld's layout: each segment lies a page further in memory than in the file.
    fn shifted() -> Segments {
        Segments(vec![
            segment(0x20_0000, 0, 0x5ac, false, false),
            segment(0x20_15b0, 0x5b0, 0x1c0, true, false),
            segment(0x20_2770, 0x770, 0x40, true, false),
            segment(0x20_37b0, 0x7b0, 0x30, false, true),
        ])
    }

    #[test]
    fn addresses_and_offsets_translate_where_they_differ() {
        let segments = shifted();
        assert_eq!(segments.offset_of(VirtualAddress(0x20_15b0)), Some(FileOffset(0x5b0)));
        assert_eq!(segments.code_offset_of(VirtualAddress(0x20_2771)), Some(FileOffset(0x771)));
        assert_eq!(segments.address_of(FileOffset(0x771)), Some(VirtualAddress(0x20_2771)));
        assert_eq!(segments.code_offset_of(VirtualAddress(0x20_0010)), None);
        assert_eq!(segments.data_offset_of(VirtualAddress(0x20_37b8)), Some(FileOffset(0x7b8)));
        // One address is right after the end, and the other has zeros that the file does not contain.
        assert_eq!(segments.code_offset_of(VirtualAddress(0x20_15b0 + 0x1c0)), None);
        assert_eq!(segments.offset_of(VirtualAddress(0x20_37b0 + 0x30)), None);
        assert!(segments.containing(VirtualAddress(0x20_37b0 + 0x30)).is_some());
        assert!(segments.containing(VirtualAddress(0x20_37b0 + 0x12f)).is_some());
        assert!(segments.containing(VirtualAddress(0x20_37b0 + 0x130)).is_none());
        assert_eq!(segments.address_of(FileOffset(0x7e0)), None);
    }

    #[test]
    fn a_mapping_implies_the_bias() {
        let segments = shifted();
        let bias = LoadBias(0x7f00_0000_0000);
        // Lines as the kernel writes them: it rounds address and offset down to the page.
        for (address, offset, executable) in
            [(0x20_0000, 0, false), (0x20_1000, 0, true), (0x20_2000, 0, true)]
        {
            let found =
                segments.bias_of_mapping(VirtualAddress(bias.0 + address), FileOffset(offset), executable);
            if address == 0x20_2000 {
                // Two executable segments share a page of the file. We assume that the line is for the first
                // one.
                assert_eq!(found, Some(LoadBias(bias.0 + 0x1000)));
            } else {
                assert_eq!(found, Some(bias));
            }
        }
        assert_eq!(segments.bias_of_mapping(VirtualAddress(0), FileOffset(0x10_000), true), None);
        // The first offset is right after the last byte of the segment, and the second is that byte.
        assert_eq!(segments.bias_of_mapping(VirtualAddress(0), FileOffset(0x7b0), true), None);
        assert!(segments.bias_of_mapping(VirtualAddress(0), FileOffset(0x7af), true).is_some());
    }

    proptest! {
        #[test]
        fn translation_is_its_own_inverse(
            address in 0..u64::MAX / 4,
            offset in 0..u64::MAX / 4,
            size in 1..u64::MAX / 4,
            part in any::<u64>(),
        ) {
            let segments = Segments(vec![segment(address, offset, size, true, false)]);
            let inside = VirtualAddress(address + part % size);
            let found = segments.code_offset_of(inside).unwrap();
            prop_assert_eq!(segments.code_address_of(found), Some(inside));
        }
    }
}
