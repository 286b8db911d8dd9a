//! Checks the ELF header of a program: whether the program is for this machine.

use std::{fs::File, io, os::unix::fs::FileExt};

use object::elf;

/// Why a program cannot have probes.
#[derive(Debug)]
pub enum ArchitectureError {
    /// The program is 32-bit; programs of x32 are, too.
    ThirtyTwoBit {
        /// The name of the program's architecture.
        machine: String,
    },
    /// The program is 64-bit, but for another architecture.
    OtherMachine {
        /// The name of the program's architecture.
        machine: String,
    },
    /// The program is not an ELF file.
    NotElf,
    /// The header could not be read.
    Unreadable(io::Error),
}

/// The number of bytes of the ELF header up to the end of `e_machine`.
const HEADER: usize = 20;

/// The `e_machine` of programs that this build can probe.
const OWN_MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    elf::EM_X86_64
} else if cfg!(target_arch = "aarch64") {
    elf::EM_AARCH64
} else {
    elf::EM_NONE
};

/// Checks that a program is 64-bit ELF for the architecture of this build.
pub fn check(program: &File) -> Result<(), ArchitectureError> {
    let mut header = [0; HEADER];
    match program.read_exact_at(&mut header, 0) {
        Ok(()) => check_header(&header),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ArchitectureError::NotElf),
        Err(error) => Err(ArchitectureError::Unreadable(error)),
    }
}

fn check_header(header: &[u8; HEADER]) -> Result<(), ArchitectureError> {
    let [0x7f, b'E', b'L', b'F', class, data, .., low, high] = *header else {
        return Err(ArchitectureError::NotElf);
    };
    let machine = match data {
        elf::ELFDATA2LSB => u16::from_le_bytes([low, high]),
        elf::ELFDATA2MSB => u16::from_be_bytes([low, high]),
        _ => return Err(ArchitectureError::NotElf),
    };
    match class {
        elf::ELFCLASS32 => Err(ArchitectureError::ThirtyTwoBit { machine: name(machine, class) }),
        elf::ELFCLASS64 if machine == OWN_MACHINE => Ok(()),
        elf::ELFCLASS64 => Err(ArchitectureError::OtherMachine { machine: name(machine, class) }),
        _ => Err(ArchitectureError::NotElf),
    }
}

fn name(machine: u16, class: u8) -> String {
    match (machine, class) {
        (elf::EM_386, _) => "i386".to_owned(),
        (elf::EM_X86_64, elf::ELFCLASS32) => "x32".to_owned(),
        (elf::EM_X86_64, _) => "x86_64".to_owned(),
        (elf::EM_ARM, _) => "arm".to_owned(),
        (elf::EM_AARCH64, _) => "aarch64".to_owned(),
        (elf::EM_RISCV, _) => "riscv".to_owned(),
        (elf::EM_PPC64, _) => "powerpc64".to_owned(),
        (elf::EM_S390, _) => "s390".to_owned(),
        (elf::EM_LOONGARCH, _) => "loongarch".to_owned(),
        (number, _) => format!("ELF machine {number}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn header(class: u8, data: u8, machine: [u8; 2]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, data]);
        header[18..].copy_from_slice(&machine);
        header
    }

    #[test]
    fn our_own_program_is_fit() {
        check(&File::open("/proc/self/exe").unwrap()).unwrap();
    }

    #[test]
    fn other_programs_are_named() {
        for (class, data, machine, expected) in [
            (1, 1, [3, 0], "32 i386"),
            (1, 1, [62, 0], "32 x32"),
            (1, 2, [0, 8], "32 ELF machine 8"),
            (2, 1, [243, 0], "other riscv"),
            (2, 2, [0, 22], "other s390"),
            (2, 3, [62, 0], "not elf"),
            (3, 1, [62, 0], "not elf"),
        ] {
            let found = match check_header(&header(class, data, machine)) {
                Err(ArchitectureError::ThirtyTwoBit { machine }) => format!("32 {machine}"),
                Err(ArchitectureError::OtherMachine { machine }) => format!("other {machine}"),
                Err(ArchitectureError::NotElf) => "not elf".to_owned(),
                other => panic!("{other:?}"),
            };
            assert_eq!(found, expected);
        }
        assert!(matches!(check_header(b"#!/bin/sh\n##########"), Err(ArchitectureError::NotElf)));
    }
}
