//! A process's executable mappings, grouped by file.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use super::{
    mapped_file::{FileIdentity, MappedFile},
    maps::{self, BadLine, MapsLine},
};
use crate::units::{FileOffset, VirtualAddress};

/// The executable mappings of a process at one moment, in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    /// The files that have at least one executable part in memory.
    pub files: Vec<MappedFile>,
    /// The files that have no executable part, but have executable memory without a file between their parts.
    /// An example is a program that has moved its code into huge pages.
    pub moved: Vec<MappedFile>,
    /// Executable memory without a file: generated code, trampolines, and the kernel's own pages.
    pub anonymous: Vec<AnonymousMapping>,
}

/// A part of a file in the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// First address.
    pub start: VirtualAddress,
    /// First address after it.
    pub end: VirtualAddress,
    /// File offset of the first address.
    pub offset: FileOffset,
    /// Whether the process may execute this part.
    pub executable: bool,
}

impl MappedRange {
    /// The address where a file offset is mapped.
    pub fn address_of(&self, offset: FileOffset) -> Option<VirtualAddress> {
        let distance = offset.0.checked_sub(self.offset.0)?;
        let address = self.start.0.checked_add(distance)?;
        (address < self.end.0).then_some(VirtualAddress(address))
    }

    /// The file offset of an address.
    pub fn offset_of(&self, address: VirtualAddress) -> Option<FileOffset> {
        let distance = address.0.checked_sub(self.start.0)?;
        (address < self.end).then(|| self.offset.0.checked_add(distance).map(FileOffset)).flatten()
    }
}

/// Executable memory without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousMapping {
    /// First address.
    pub start: VirtualAddress,
    /// First address after it.
    pub end: VirtualAddress,
    /// The name that the kernel shows, if there is one: `[vdso]`, `[heap]`, or `[anon:NAME]` if the program
    /// gave a name.
    pub name: Option<OsString>,
}

impl AnonymousMapping {
    /// Whether this is the kernel's own memory, which holds none of the program's code.
    pub fn is_the_kernels(&self) -> bool {
        let name = self.name.as_deref().unwrap_or_default();
        ["[vdso]", "[vsyscall]", "[uprobes]", "[sigpage]", "[vectors]"].iter().any(|own| name == *own)
    }

    /// Whether an address lies in this memory.
    pub fn contains(&self, address: VirtualAddress) -> bool {
        (self.start..self.end).contains(&address)
    }
}

impl Mappings {
    /// Reads /proc/PID/maps. `root` is the target of /proc/PID/root. The kernel shows paths as we see them.
    /// We turn each path below the process's root into the path that the process itself sees.
    pub fn parse(text: &[u8], root: &Path) -> Result<Self, BadLine> {
        let mut mappings = Self::default();
        // The parts of one file need not be neighbours. So we group the parts by inode, in the order in which
        // each file first appears.
        let mut positions: HashMap<FileIdentity, usize> = HashMap::new();
        for line in maps::lines(text) {
            let line = line?;
            if line.inode == 0 {
                if line.executable {
                    mappings.anonymous.push(anonymous(&line));
                }
                continue;
            }
            let identity = FileIdentity { device: line.device, inode: line.inode };
            let position = *positions.entry(identity).or_insert_with(|| {
                mappings.files.push(file(&line, identity, root));
                mappings.files.len() - 1
            });
            if let Some(file) = mappings.files.get_mut(position) {
                file.ranges.push(range(&line));
            }
        }
        let has_code = |file: &MappedFile| file.executable_ranges().next().is_some();
        let (files, others) = mappings.files.into_iter().partition(has_code);
        mappings.files = files;
        mappings.moved = others;
        mappings.moved.retain(|file| mappings.anonymous.iter().any(|memory| is_among(memory, &file.ranges)));
        Ok(mappings)
    }

    /// The file that an address is mapped from, and the address's offset in that file.
    pub fn file_at(&self, address: VirtualAddress) -> Option<(&MappedFile, FileOffset)> {
        self.files.iter().find_map(|file| file.offset_of(address).map(|offset| (file, offset)))
    }
}

/// Whether memory lies between a file's first and last part.
fn is_among(memory: &AnonymousMapping, ranges: &[MappedRange]) -> bool {
    let after = |range: &MappedRange| range.end <= memory.start;
    let before = |range: &MappedRange| memory.end <= range.start;
    !memory.is_the_kernels() && ranges.iter().any(after) && ranges.iter().any(before)
}

fn range(line: &MapsLine<'_>) -> MappedRange {
    MappedRange { start: line.start, end: line.end, offset: line.offset, executable: line.executable }
}

fn anonymous(line: &MapsLine<'_>) -> AnonymousMapping {
    let name = (!line.name.is_empty()).then(|| line.name.clone().into_owned());
    AnonymousMapping { start: line.start, end: line.end, name }
}

fn file(line: &MapsLine<'_>, identity: FileIdentity, root: &Path) -> MappedFile {
    let (path, deleted) = match line.name.as_bytes().strip_suffix(DELETED) {
        Some(path) => (OsStr::from_bytes(path), true),
        None => (line.name.as_ref(), false),
    };
    MappedFile {
        path_in_process: path_below(Path::new(path), root),
        deleted,
        identity,
        ranges: Vec::new(),
        shown: PathBuf::from(line.name.clone().into_owned()),
    }
}

/// The suffix that the kernel adds to the path of a deleted file. (A file's name may end in the same bytes;
/// opening tries both names.)
pub(super) const DELETED: &[u8] = b" (deleted)";

/// The path that a process with this root sees. We see both `path` and `root` from our own root. A path
/// outside `root` (mapped before a chroot) stays as it is. We compare bytes, because a `Path` would drop
/// doubled and final slashes.
pub(super) fn path_below(path: &Path, root: &Path) -> PathBuf {
    let root = root.as_os_str().as_bytes();
    if root == b"/" {
        return path.to_owned();
    }
    match path.as_os_str().as_bytes().strip_prefix(root) {
        Some(below) if below.starts_with(b"/") => PathBuf::from(OsString::from_vec(below.to_vec())),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MAPS: &[u8] = b"\
55b000000000-55b000001000 r--p 00000000 fe:00 7      /srv/jail/bin/prog
55b000001000-55b000003000 r-xp 00001000 fe:00 7      /srv/jail/bin/prog
55b000003000-55b000004000 rw-p 00003000 fe:00 7      /srv/jail/bin/prog
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
7f0000010000-7f0000011000 r-xp 00000000 00:01 1033   /memfd:jit code (deleted)
7f0000020000-7f0000021000 r-xs 00000000 00:01 2      /dev/zero (deleted)
7f0000030000-7f0000031000 r--p 00000000 fe:00 8      /srv/jail/share/data
7f0000040000-7f0000041000 r-xp 00002000 fe:00 9      /usr/lib/outside.so (deleted)
7f0000050000-7f0000051000 r-xp 00001000 fe:00 7      /srv/jail/bin/prog
7f0000060000-7f0000062000 r-xp 00000000 00:00 0      [vdso]
7f0000070000-7f0000071000 r-xp 00000000 00:0e 1      anon_inode:[some]
7f0000080000-7f0000081000 rwxp 00000000 00:00 0      [anon:cpython:perf_trampoline]
";

    fn mappings() -> Mappings {
        Mappings::parse(MAPS, Path::new("/srv/jail")).unwrap()
    }

    #[test]
    fn files_are_grouped_by_inode_and_named_as_the_process_sees_them() {
        let found: Vec<_> = mappings()
            .files
            .into_iter()
            .map(|file| (file.path_in_process.display().to_string(), file.deleted, file.ranges.len()))
            .collect();
        let expected = [
            ("/bin/prog", false, 4),
            ("/memfd:jit code", true, 1),
            ("/dev/zero", true, 1),
            ("/usr/lib/outside.so", true, 1),
            ("anon_inode:[some]", false, 1),
        ];
        assert_eq!(found, expected.map(|(path, deleted, ranges)| (path.to_owned(), deleted, ranges)));
    }

    #[test]
    fn a_file_whose_code_was_moved_is_told_from_one_that_has_none() {
        const MAPS: &[u8] = b"\
400000-401000 r--p 00000000 fe:00 7      /bin/moved
401000-402000 r-xp 00000000 00:00 0 \n\
402000-403000 r--p 00002000 fe:00 7      /bin/moved
500000-501000 r--p 00000000 fe:00 8      /share/data
600000-601000 r--p 00000000 fe:00 9      /share/other
601000-602000 r--p 00001000 fe:00 9      /share/other
";
        let found = Mappings::parse(MAPS, Path::new("/")).unwrap();
        let moved: Vec<_> = found.moved.iter().map(|file| file.identity.inode).collect();
        assert_eq!((found.files.len(), moved), (0, vec![7]));
    }

    #[test]
    fn executable_memory_without_a_file_is_listed() {
        let anonymous = mappings().anonymous;
        let names: Vec<_> = anonymous.iter().map(|mapping| mapping.name.as_deref()).collect();
        assert_eq!(
            names,
            [None, Some(OsStr::new("[vdso]")), Some(OsStr::new("[anon:cpython:perf_trampoline]"))]
        );
        let kernels: Vec<_> = anonymous.iter().map(AnonymousMapping::is_the_kernels).collect();
        assert_eq!(kernels, [false, true, false]);
        assert!(anonymous[0].contains(VirtualAddress(0x7f00_0000_0fff)));
        assert!(!anonymous[0].contains(VirtualAddress(0x7f00_0000_1000)));
    }

    #[test]
    fn offsets_and_addresses_convert_both_ways() {
        let mappings = mappings();
        let program = &mappings.files[0];
        let addresses: Vec<_> = program.addresses_of(FileOffset(0x1234)).map(|address| address.0).collect();
        assert_eq!(addresses, [0x55b0_0000_1234, 0x7f00_0005_0234]);
        assert_eq!(program.addresses_of(FileOffset(0x3010)).next(), None, "not executable");
        assert_eq!(program.offset_of(VirtualAddress(0x55b0_0000_3010)), Some(FileOffset(0x3010)));
        assert_eq!(program.offset_of(VirtualAddress(0x55b0_0000_4000)), None);
        assert_eq!(
            program.load_bias(FileOffset(0x1234), VirtualAddress(0x40_2234)),
            Some(0x55b0_0000_1234 - 0x40_2234)
        );
        let (file, offset) = mappings.file_at(VirtualAddress(0x7f00_0004_0001)).unwrap();
        assert_eq!((file.identity.inode, offset), (9, FileOffset(0x2001)));
        assert!(mappings.file_at(VirtualAddress(0x7f00_0003_0000)).is_none(), "not executable anywhere");
    }

    #[test]
    fn only_what_lies_below_the_root_is_renamed() {
        for (path, root, seen) in [
            ("/bin/x", "/", "/bin/x"),
            ("/srv/jail/bin/x", "/srv/jail", "/bin/x"),
            ("/srv/jailed/bin/x", "/srv/jail", "/srv/jailed/bin/x"),
            ("/srv/jail", "/srv/jail", "/srv/jail"),
        ] {
            assert_eq!(path_below(Path::new(path), Path::new(root)), Path::new(seen));
        }
    }
}
