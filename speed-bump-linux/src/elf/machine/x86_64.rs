//! x86-64: the types of relocations, and the operands of USDT arguments (in AT&T syntax, as the compiler
//! printed them).

use object::elf;
use speed_bump_abi::ArgumentSpec;

use crate::elf::usdt::{ArgumentError, parse_integer};

/// System V ABI, AMD64 supplement, table 4.9.
pub(super) const SYMBOL_SLOTS: &[u32] = &[elf::R_X86_64_JUMP_SLOT, elf::R_X86_64_GLOB_DAT];
pub(super) const INDIRECT_SLOT: u32 = elf::R_X86_64_IRELATIVE;

pub(super) fn usdt_operand(size: i8, operand: &str) -> Result<ArgumentSpec, ArgumentError> {
    if let Some(constant) = operand.strip_prefix('$') {
        let value = parse_integer(constant).ok_or_else(|| symbolic_or_malformed(operand))?;
        return Ok(ArgumentSpec { kind: ArgumentSpec::CONSTANT, size, value, ..ArgumentSpec::default() });
    }
    if let Some(name) = operand.strip_prefix('%') {
        if operand.contains([':', '(']) {
            return Err(ArgumentError::Unsupported(
                operand.to_owned(),
                "it is relative to a segment register",
            ));
        }
        let register = Register::named(name).ok_or_else(|| unknown_register(name))?;
        if size.unsigned_abs() > register.bytes {
            return Err(ArgumentError::Unsupported(
                operand.to_owned(),
                "the argument is wider than its register",
            ));
        }
        return Ok(ArgumentSpec {
            kind: ArgumentSpec::REGISTER,
            size,
            register: register.offset,
            index: ArgumentSpec::NO_REGISTER,
            ..ArgumentSpec::default()
        });
    }
    memory(size, operand)
}

/// Reads `displacement(base, index, scale)`.
fn memory(size: i8, operand: &str) -> Result<ArgumentSpec, ArgumentError> {
    let Some((displacement, inner)) = operand.strip_suffix(')').and_then(|operand| operand.split_once('('))
    else {
        return Err(symbolic_or_malformed(operand));
    };
    let mut parts = inner.split(',').map(str::trim);
    let (base, index, scale) = (parts.next().unwrap_or(""), parts.next(), parts.next());
    if parts.next().is_some() {
        return Err(ArgumentError::Malformed(operand.to_owned()));
    }
    if base == "%rip" {
        return Err(ArgumentError::Symbolic(operand.to_owned()));
    }
    if base.is_empty() {
        return Err(ArgumentError::Unsupported(operand.to_owned(), "it has no base register"));
    }
    let value = match displacement {
        "" => 0,
        text => parse_integer(text).ok_or_else(|| symbolic_or_malformed(operand))?,
    };
    let register = address_register(base, operand)?;
    let index = match index {
        None | Some("") => ArgumentSpec::NO_REGISTER,
        Some(index) => address_register(index, operand)?,
    };
    let scale = match scale {
        None | Some("" | "1") => 1,
        Some("2") => 2,
        Some("4") => 4,
        Some("8") => 8,
        Some(_) => return Err(ArgumentError::Malformed(operand.to_owned())),
    };
    Ok(ArgumentSpec { kind: ArgumentSpec::MEMORY, size, register, index, scale, value })
}

/// The `pt_regs` offset of a register in an address. All 64 bits of it count.
fn address_register(text: &str, operand: &str) -> Result<u16, ArgumentError> {
    let name = text.strip_prefix('%').ok_or_else(|| ArgumentError::Malformed(operand.to_owned()))?;
    let register = Register::named(name).ok_or_else(|| unknown_register(name))?;
    if register.bytes != 8 {
        return Err(ArgumentError::Unsupported(operand.to_owned(), "its address is not 64 bits wide"));
    }
    Ok(register.offset)
}

/// The error for text that is not a number: the name of a symbol, or nonsense.
fn symbolic_or_malformed(operand: &str) -> ArgumentError {
    let name = operand.trim_start_matches(['$', '-', '+']);
    if name.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '_' | '.')) {
        ArgumentError::Symbolic(operand.to_owned())
    } else {
        ArgumentError::Malformed(operand.to_owned())
    }
}

fn unknown_register(name: &str) -> ArgumentError {
    match name {
        "ah" | "bh" | "ch" | "dh" => {
            ArgumentError::Unsupported(format!("%{name}"), "it is the second byte of a register")
        }
        "rip" => ArgumentError::Unsupported("%rip".to_owned(), "it is the instruction pointer"),
        _ => ArgumentError::Register(name.to_owned()),
    }
}

/// A general-purpose register, or the low part of one.
struct Register {
    /// The offset in `struct pt_regs` (`arch/x86/include/asm/ptrace.h`), in bytes.
    offset: u16,
    /// The width in bytes.
    bytes: u8,
}

impl Register {
    /// Finds a register by name, without `%`. On this little-endian machine, the low part of a register has
    /// the register's own offset.
    fn named(name: &str) -> Option<Self> {
        // The names of the parts with 8, 4, 2 and 1 bytes.
        const LEGACY: &[(u16, [&str; 4])] = &[
            (32, ["rbp", "ebp", "bp", "bpl"]),
            (40, ["rbx", "ebx", "bx", "bl"]),
            (80, ["rax", "eax", "ax", "al"]),
            (88, ["rcx", "ecx", "cx", "cl"]),
            (96, ["rdx", "edx", "dx", "dl"]),
            (104, ["rsi", "esi", "si", "sil"]),
            (112, ["rdi", "edi", "di", "dil"]),
            (152, ["rsp", "esp", "sp", "spl"]),
        ];
        const WIDTHS: [u8; 4] = [8, 4, 2, 1];
        for (offset, names) in LEGACY {
            if let Some(position) = names.iter().position(|known| *known == name) {
                return Some(Self { offset: *offset, bytes: WIDTHS[position] });
            }
        }
        let number = name.strip_prefix('r')?;
        let (digits, bytes) = match number.strip_suffix(['d', 'w', 'b']) {
            None => (number, 8),
            Some(digits) => match number.as_bytes().last() {
                Some(b'd') => (digits, 4),
                Some(b'w') => (digits, 2),
                _ => (digits, 1),
            },
        };
        let offset = match digits {
            "8" => 72,
            "9" => 64,
            "10" => 56,
            "11" => 48,
            "12" => 24,
            "13" => 16,
            "14" => 8,
            "15" => 0,
            _ => return None,
        };
        Some(Self { offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(size: i8, register: u16) -> ArgumentSpec {
        ArgumentSpec {
            kind: ArgumentSpec::REGISTER,
            size,
            register,
            index: ArgumentSpec::NO_REGISTER,
            ..ArgumentSpec::default()
        }
    }

    fn memory(size: i8, register: u16, index: u16, scale: u16, value: i64) -> ArgumentSpec {
        ArgumentSpec { kind: ArgumentSpec::MEMORY, size, register, index, scale, value }
    }

    #[test]
    fn operands_are_read() {
        const NONE: u16 = ArgumentSpec::NO_REGISTER;
        let constant =
            |size, value| ArgumentSpec { kind: ArgumentSpec::CONSTANT, size, value, ..Default::default() };
        for (size, operand, expected) in [
            (4, "$5", constant(4, 5)),
            (-4, "$-1", constant(-4, -1)),
            (8, "$0xffffffffffffffff", constant(8, -1)),
            (8, "$18446744073709551615", constant(8, -1)),
            (-8, "$-9223372036854775808", constant(-8, i64::MIN)),
            (-4, "%eax", register(-4, 80)),
            (8, "%rax", register(8, 80)),
            (1, "%al", register(1, 80)),
            (2, "%ax", register(2, 80)),
            (4, "%r8d", register(4, 72)),
            (1, "%r15b", register(1, 0)),
            (2, "%r10w", register(2, 56)),
            (8, "%rsp", register(8, 152)),
            (1, "%dil", register(1, 112)),
            (8, "-8(%rbp)", memory(8, 32, NONE, 1, -8)),
            (8, "(%rbx)", memory(8, 40, NONE, 1, 0)),
            (8, "0x10(%rsp)", memory(8, 152, NONE, 1, 16)),
            (8, "(%rax,%rbx,8)", memory(8, 80, 40, 8, 0)),
            (8, "-16(%r12,%rcx)", memory(8, 24, 88, 1, -16)),
            (8, "4(%rax,%rbx,2)", memory(8, 80, 40, 2, 4)),
        ] {
            assert_eq!(usdt_operand(size, operand), Ok(expected), "{operand}");
        }
    }

    #[test]
    fn all_registers_have_the_offsets_of_pt_regs() {
        // The registers of struct pt_regs in memory order, eight bytes each. orig_rax, rip, cs, eflags and ss
        // are never operands.
        let order = [
            "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
            "rdi", "", "", "", "", "rsp",
        ];
        for (position, name) in order.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            assert_eq!(usdt_operand(8, &format!("%{name}")), Ok(register(8, position as u16 * 8)), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        use ArgumentError as E;
        for operand in ["foo(%rip)", "foo+8(%rip)", "8(%rip)", "$foo", "counter", "foo(%rax)", ".LC0(%rip)"] {
            assert!(matches!(usdt_operand(8, operand), Err(E::Symbolic(_))), "{operand}");
        }
        for operand in ["%ah", "(,%rax,8)", "%fs:8(%rax)", "%fs:0", "(%eax)", "%rip"] {
            assert!(matches!(usdt_operand(1, operand), Err(E::Unsupported(..))), "{operand}");
        }
        assert!(matches!(usdt_operand(8, "%eax"), Err(E::Unsupported(..))));
        for operand in ["%xmm0", "%r16", "%r7", "%", "%r", "%st(0)x", "(%foo)"] {
            assert!(usdt_operand(8, operand).is_err(), "{operand}");
        }
        for operand in ["", "$", "5", "(%rax", "8%rax)", "(%rax,%rbx,3)", "(%rax,%rbx,4,5)", "(rax)", "()"] {
            assert!(
                matches!(usdt_operand(8, operand), Err(E::Malformed(_) | E::Unsupported(..))),
                "{operand}"
            );
        }
    }
}
