//! Functions of our own for probes: for each kind of site, a function that contains nothing else.

use std::{fs, io};

use crate::{
    probe::site::SiteKind,
    sys::fork,
    units::{FileOffset, VirtualAddress},
};

#[cfg(target_arch = "aarch64")]
#[path = "stubs/aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "stubs/x86_64.rs"]
mod arch;

/// A stub. Its first instruction is of the given kind, and it returns at once.
#[derive(Clone, Copy, Debug)]
pub struct Stub {
    /// The kind of the first instruction.
    pub kind: SiteKind,
    function: extern "C" fn(),
}

impl Stub {
    /// All stubs of this processor, in the order of [`SiteKind::ALL`].
    pub fn all() -> Vec<Self> {
        arch::STUBS.iter().map(|(kind, function)| Self { kind: *kind, function: *function }).collect()
    }

    /// Calls the stub.
    #[inline(always)]
    pub fn call(self) {
        (self.function)();
    }

    /// Whether a forked child survives a call of the stub.
    ///
    /// # Errors
    /// We could not create the child.
    pub fn survives_fork(self) -> io::Result<bool> {
        fork::survives(self.function)
    }
}

/// The offsets of stubs in the file `/proc/self/exe`.
///
/// # Errors
/// We cannot read `/proc/self/maps`, or it does not contain the stubs.
pub fn file_offsets(stubs: &[Stub]) -> io::Result<Vec<FileOffset>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let offset = |stub: &Stub| {
        let address = VirtualAddress(stub.function as usize as u64);
        let found = maps.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let offset = fields.nth(1)?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
            (start..end).contains(&address.0).then(|| FileOffset(address.0 - start + offset))
        });
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    stubs.iter().map(offset).collect()
}
