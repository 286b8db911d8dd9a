//! aarch64: the types of relocations. USDT operands are not implemented.

use object::elf;
use speed_bump_abi::ArgumentSpec;

use crate::elf::usdt::ArgumentError;

/// ELF for the Arm 64-bit Architecture, "Dynamic relocations".
pub(super) const SYMBOL_SLOTS: &[u32] = &[elf::R_AARCH64_JUMP_SLOT, elf::R_AARCH64_GLOB_DAT];
pub(super) const INDIRECT_SLOT: u32 = elf::R_AARCH64_IRELATIVE;

pub(super) fn usdt_operand(_size: i8, _operand: &str) -> Result<ArgumentSpec, ArgumentError> {
    Err(ArgumentError::Machine("aarch64"))
}
