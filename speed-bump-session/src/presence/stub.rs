//! Finds the stubs in the helper's image: its USDT probe `speed_bump:python_entry` gives their locations.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use speed_bump_abi::control_block::python_entry;

use crate::{
    elf::{ElfError, ElfFile},
    probe::site::SiteKind,
    units::FileOffset,
};

/// Why we found no stub.
#[derive(Debug, thiserror::Error)]
pub enum StubError {
    /// The image could not be read.
    #[error("cannot read the helper's image in the process: {0}")]
    Io(io::Error),
    /// The image is not an ELF file.
    #[error("the helper's image in the process cannot be used: {0}")]
    Elf(ElfError),
    /// The image has no such stub.
    #[error(
        "the helper's image in the process has no stub that is a {0}: it comes from another version; restart \
         the process, or use --no-inject"
    )]
    Missing(SiteKind),
}

impl From<io::Error> for StubError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ElfError> for StubError {
    fn from(error: ElfError) -> Self {
        Self::Elf(error)
    }
}

/// Finds the stub with this instruction.
///
/// # Errors
/// There is no such stub.
pub fn find(image: &File, kind: SiteKind) -> Result<FileOffset, StubError> {
    let elf = ElfFile::from_file(image.try_clone()?, "the helper")?;
    for probe in elf.usdt_probes()?.probes {
        if (probe.provider.as_str(), probe.name.as_str()) != (python_entry::PROVIDER, python_entry::NAME) {
            continue;
        }
        for location in &probe.locations {
            let mut code = [0; 5];
            image.read_exact_at(&mut code, location.offset.0)?;
            if kind_of(code) == Some(kind) {
                return Ok(location.offset);
            }
        }
    }
    Err(StubError::Missing(kind))
}

#[cfg(target_arch = "x86_64")]
fn kind_of(code: [u8; 5]) -> Option<SiteKind> {
    match code {
        [0x0f, 0x1f, 0x44, 0x00, 0x00] => Some(SiteKind::Nop5),
        [0x90, ..] => Some(SiteKind::Nop),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kind_of([a, b, c, d, _]: [u8; 5]) -> Option<SiteKind> {
    // The `nop` of aarch64.
    (u32::from_le_bytes([a, b, c, d]) == 0xd503_201f).then_some(SiteKind::Nop)
}
