//! The parts of the helper's image that injecting uses.

use super::{InjectError, symbols};
use crate::{elf::ElfFile, units::VirtualAddress};

/// The function that the helper exports: `int speed_bump_attach(int control_fd)`.
const ATTACH: &str = "speed_bump_attach";

/// A helper's image that we can inject.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) elf: ElfFile,
    /// The address of [`ATTACH`], as in the image's headers.
    pub(super) attach: VirtualAddress,
}

impl Image {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, InjectError> {
        let bad = |what: &str| InjectError::Image(what.to_owned());
        let elf = ElfFile::from_bytes(bytes, "the helper").map_err(|error| bad(&error.to_string()))?;
        let attach = symbols::exported(bytes, ATTACH).ok_or_else(|| bad("it has no speed_bump_attach"))?;
        Ok(Self { elf, attach })
    }
}
