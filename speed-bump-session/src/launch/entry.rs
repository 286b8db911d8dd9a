//! The entry point of a program.

use std::io::{self, Read as _};

use rustix::fs::OFlags;

use crate::{process::Process, units::VirtualAddress};

/// The most bytes of the auxiliary vector that we read. The kernel's own limit is far lower.
const LIMIT: u64 = 4096;

/// The address of the program's own first instruction: `AT_ENTRY` in its auxiliary vector. The dynamic linker
/// jumps there when it is done.
///
/// # Errors
/// The vector cannot be read, or does not have this entry.
pub(super) fn read(process: &Process) -> io::Result<VirtualAddress> {
    let mut bytes = Vec::new();
    process.open_entry("auxv", OFlags::RDONLY)?.take(LIMIT).read_to_end(&mut bytes)?;
    find(&bytes).ok_or_else(|| io::Error::other("its auxiliary vector names no entry point"))
}

fn find(bytes: &[u8]) -> Option<VirtualAddress> {
    let (words, _) = bytes.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let mut pairs = pairs.iter().map(|[key, value]| (u64::from_ne_bytes(*key), u64::from_ne_bytes(*value)));
    pairs.find(|(key, _)| *key == libc::AT_ENTRY).map(|(_, value)| VirtualAddress(value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    use super::*;
    use crate::units::Pid;

    #[test]
    fn the_entry_point_of_a_program_is_code() {
        let piped = Stdio::piped;
        let mut child = Command::new("cat").stdin(piped()).stdout(piped()).spawn().unwrap();
        // The child's answer shows that the child has started: the kernel sets the vector a moment after the
        // exec.
        child.stdin.as_mut().unwrap().write_all(b".").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let process = Process::open(Pid::new(child.id().cast_signed()).unwrap()).unwrap();
        let entry = read(&process).unwrap();
        let regions = process.regions().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let there = regions.iter().find(|region| (region.start..region.end).contains(&entry)).unwrap();
        assert!(there.executable);
    }

    #[test]
    fn a_vector_without_it_names_none() {
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[9; 20]), None);
        let words = [6_u64, 4096, libc::AT_ENTRY, 0x40_1000, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(find(&bytes), Some(VirtualAddress(0x40_1000)));
    }
}
