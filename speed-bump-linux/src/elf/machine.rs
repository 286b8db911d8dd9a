//! The differences between architectures. Each architecture has a file, and the enumeration here chooses.

mod aarch64;
mod x86_64;

use std::fmt;

use object::elf;
use speed_bump_abi::ArgumentSpec;

use super::usdt::ArgumentError;

/// An architecture whose files can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// AMD64.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// Relocations that put the address of a function into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotRelocation {
    /// The slot gets the address of a named symbol, perhaps only at the first call.
    Symbol,
    /// The addend is the address of a resolver. The slot gets the resolver's result before the program
    /// starts.
    Indirect,
}

impl Machine {
    /// The machine for which this program was built, if it is supported.
    pub const HOST: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Self::Aarch64)
    } else {
        None
    };

    /// The machine with this `e_machine`.
    pub(super) fn from_header(e_machine: u16) -> Option<Self> {
        match e_machine {
            elf::EM_X86_64 => Some(Self::X86_64),
            elf::EM_AARCH64 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// What a dynamic relocation of this type puts into its slot, if this is the address of a function.
    pub(super) fn slot_relocation(self, r_type: u32) -> Option<SlotRelocation> {
        let (symbol, indirect) = match self {
            Self::X86_64 => (x86_64::SYMBOL_SLOTS, x86_64::INDIRECT_SLOT),
            Self::Aarch64 => (aarch64::SYMBOL_SLOTS, aarch64::INDIRECT_SLOT),
        };
        if symbol.contains(&r_type) {
            Some(SlotRelocation::Symbol)
        } else {
            (r_type == indirect).then_some(SlotRelocation::Indirect)
        }
    }

    /// Reads the operand of a USDT argument (the text after `@`). `size` is in bytes, and is negative if the
    /// argument is signed.
    pub(super) fn usdt_operand(self, size: i8, operand: &str) -> Result<ArgumentSpec, ArgumentError> {
        match self {
            Self::X86_64 => x86_64::usdt_operand(size, operand),
            Self::Aarch64 => aarch64::usdt_operand(size, operand),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86-64",
            Self::Aarch64 => "aarch64",
        })
    }
}
