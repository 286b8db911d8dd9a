//! USDT probes: the notes that `<sys/sdt.h>` and similar headers leave in `.note.stapsdt`.
//!
//! Format: <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>. There is a note for each
//! location. Notes with the same provider and name are locations of one probe.

use std::collections::BTreeMap;

use object::{
    LittleEndian, elf,
    read::elf::{ProgramHeader as _, SectionHeader as _},
};
use speed_bump_abi::ArgumentSpec;

use super::{
    error::ElfError,
    file::ElfFile,
    machine::Machine,
    name::printable,
    segments::Segments,
    tables::{Note, Tables},
};
use crate::{
    bounds::NAME_BYTES,
    units::{FileOffset, VirtualAddress},
};

/// The owner of the notes, and their type (`NT_STAPSDT`).
const OWNER: &[u8] = b"stapsdt";
const NOTE_TYPE: u32 = 3;
/// The most bytes of all notes: about 50,000 locations. The largest known file (QEMU) has a tenth of this.
const NOTES_LIMIT: u64 = 4 << 20;
/// The most arguments of a location: `<sys/sdt.h>` has no probe with more.
const ARGUMENTS_LIMIT: usize = 12;

/// The USDT probes of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsdtProbes {
    /// The probes, with the locations to which we can attach.
    pub probes: Vec<UsdtProbe>,
    /// The locations to which we cannot attach, each with the reason. A probe may have locations of both
    /// kinds.
    pub refused: Vec<RefusedLocation>,
}

/// A probe, with all locations in the file where it fires.
#[derive(Clone, Debug, PartialEq)]
pub struct UsdtProbe {
    /// The first part of the probe's name, such as `python` or `libc`.
    pub provider: String,
    /// The second part of the probe's name, such as `function__entry`.
    pub name: String,
    /// The locations, sorted by address. There is at least one.
    pub locations: Vec<UsdtLocation>,
}

/// A location where a probe fires.
#[derive(Clone, Debug, PartialEq)]
pub struct UsdtLocation {
    /// The address of the instruction (a nop).
    pub address: VirtualAddress,
    /// The offset of the instruction in the file. A uprobe attaches to it.
    pub offset: FileOffset,
    /// The file offset of the semaphore: a 16-bit counter that the program tests before it fires the probe
    /// (`ref_ctr_offset` of the perf event). `None` if the probe always fires.
    pub semaphore: Option<FileOffset>,
    /// The arguments, in order.
    pub arguments: Vec<UsdtArgument>,
}

/// An argument at a location.
#[derive(Clone, Debug, PartialEq)]
pub struct UsdtArgument {
    /// The text in the note, such as `-4@%eax`.
    pub text: String,
    /// How the BPF program reads the argument, or why it cannot.
    pub spec: Result<ArgumentSpec, ArgumentError>,
}

/// Why an argument cannot be read. The probe itself still works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The text is not of the form `SIZE@OPERAND`, or no assembler knows the operand.
    #[error("argument `{0}` is not of the form SIZE@OPERAND")]
    Malformed(String),
    /// The size is not 1, 2, 4 or 8 bytes, or the argument is floating-point.
    #[error("argument size `{0}` is not supported: only integers of 1, 2, 4 and 8 bytes are")]
    Size(String),
    /// The address of a symbol is part of the operand.
    #[error("argument `{0}` names a symbol; only registers, constants and memory behind registers are read")]
    Symbolic(String),
    /// The operand is not a general-purpose register.
    #[error("argument register `%{0}` is not a general-purpose register")]
    Register(String),
    /// The operand is valid, but [`ArgumentSpec`] cannot express it.
    #[error("argument `{0}` cannot be read: {1}")]
    Unsupported(String, &'static str),
    /// Reading operands is not implemented for this architecture.
    #[error("USDT arguments are not read on {0} yet")]
    Machine(&'static str),
}

/// A location to which we cannot attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLocation {
    /// The provider; empty if unreadable.
    pub provider: String,
    /// The name of the probe; empty if unreadable.
    pub name: String,
    /// Why we cannot attach to the location.
    pub reason: LocationRefusal,
}

/// Why we cannot attach to a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationRefusal {
    /// The note is shorter than its fixed part, or its strings do not end.
    #[error("its note is malformed")]
    Malformed,
    /// The address of the probe is not in an executable segment.
    #[error("its address {0} is in no executable segment of the file")]
    NotCode(VirtualAddress),
    /// The semaphore is not in a writable segment of the file, so we could not raise it.
    #[error("its semaphore at {0} is in no writable segment of the file, so the probe would never fire")]
    Semaphore(VirtualAddress),
}

impl ElfFile {
    /// Reads all USDT probes.
    ///
    /// Finds the notes through the section headers, because notes are not loaded into memory. If a file has
    /// no section headers, this searches `PT_NOTE`.
    ///
    /// # Errors
    /// [`ElfError`] if the tables cannot be read. If only a location is invalid, it is in
    /// [`UsdtProbes::refused`].
    pub fn usdt_probes(&self) -> Result<UsdtProbes, ElfError> {
        let cache = self.cache();
        let tables = Tables::read(self, &cache)?;
        let mut found = Collector {
            machine: self.machine(),
            segments: self.segments(),
            base: tables
                .section_named(b".stapsdt.base")
                .map(|base| VirtualAddress(base.sh_addr(LittleEndian))),
            probes: BTreeMap::new(),
            refused: Vec::new(),
        };
        if tables.has_sections() {
            for section in tables.sections_named(b".note.stapsdt") {
                let range = section.file_range(LittleEndian).unwrap_or_default();
                found.notes(tables.limited(range, NOTES_LIMIT, "section .note.stapsdt")?);
            }
        } else {
            for segment in tables.program_headers().iter().filter(|p| p.p_type(LittleEndian) == elf::PT_NOTE)
            {
                let range = segment.file_range(LittleEndian);
                found.notes(tables.limited(range, NOTES_LIMIT, "note segment")?);
            }
        }
        Ok(found.finish())
    }
}

struct Collector<'a> {
    machine: Machine,
    segments: &'a Segments,
    /// The address of `.stapsdt.base` in this file. If the file was prelinked, the notes have another value.
    base: Option<VirtualAddress>,
    probes: BTreeMap<(String, String), Vec<UsdtLocation>>,
    refused: Vec<RefusedLocation>,
}

impl Collector<'_> {
    fn notes(&mut self, mut data: &[u8]) {
        while let Some((note, rest)) = Note::split_off(data) {
            if note.owner.strip_suffix(&[0]).unwrap_or(note.owner) == OWNER && note.kind == NOTE_TYPE {
                self.note(note.description);
            }
            data = rest;
        }
        // Padding at the end is no note. Any other bytes are an invalid note.
        if data.iter().any(|byte| *byte != 0) {
            self.refuse("", "", LocationRefusal::Malformed);
        }
    }

    /// Reads a note: three addresses, then provider, name and arguments, each with a final NUL.
    fn note(&mut self, description: &[u8]) {
        let Some((addresses, strings)) = description.split_first_chunk::<24>() else {
            return self.refuse("", "", LocationRefusal::Malformed);
        };
        let mut strings = strings.split(|byte| *byte == 0);
        let (Some(provider), Some(name), Some(arguments), Some(_)) =
            (strings.next(), strings.next(), strings.next(), strings.next())
        else {
            return self.refuse("", "", LocationRefusal::Malformed);
        };
        if provider.len().max(name.len()) > NAME_BYTES {
            return self.refuse("", "", LocationRefusal::Malformed);
        }
        let (provider, name) = (printable(provider), printable(name));
        let [pc, base, semaphore] = [0, 8, 16].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&addresses[at..at + 8]);
            u64::from_le_bytes(word)
        });
        let moved = self.base.map_or(0, |now| now.0.wrapping_sub(base));
        let address = VirtualAddress(pc.wrapping_add(moved));
        let Some(offset) = self.segments.code_offset_of(address) else {
            return self.refuse(&provider, &name, LocationRefusal::NotCode(address));
        };
        let semaphore = match semaphore {
            0 => None,
            semaphore => {
                let address = VirtualAddress(semaphore.wrapping_add(moved));
                let Some(offset) = self.segments.data_offset_of(address) else {
                    return self.refuse(&provider, &name, LocationRefusal::Semaphore(address));
                };
                Some(offset)
            }
        };
        let arguments = parse_arguments(self.machine, &printable(arguments));
        let location = UsdtLocation { address, offset, semaphore, arguments };
        self.probes.entry((provider.into(), name.into())).or_default().push(location);
    }

    fn refuse(&mut self, provider: &str, name: &str, reason: LocationRefusal) {
        self.refused.push(RefusedLocation { provider: provider.to_owned(), name: name.to_owned(), reason });
    }

    fn finish(self) -> UsdtProbes {
        let probes = self.probes.into_iter().map(|((provider, name), mut locations)| {
            // If the linker has repeated a note, it counts as one location: two uprobes there would count
            // every call twice.
            locations.sort_by_key(|location| (location.address, location.semaphore));
            locations.dedup_by_key(|location| (location.address, location.semaphore));
            UsdtProbe { provider, name, locations }
        });
        UsdtProbes { probes: probes.collect(), refused: self.refused }
    }
}

/// Reads the arguments of a note, such as `-4@%eax 8@$5 …`. Operands may contain spaces (aarch64: `8@[sp,
/// 16]`): a word without `@` belongs to the word before. We ignore arguments after the twelfth.
pub fn parse_arguments(machine: Machine, text: &str) -> Vec<UsdtArgument> {
    let mut arguments: Vec<String> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let count = arguments.len();
        match arguments.last_mut() {
            Some(last) if !word.contains('@') => {
                last.push(' ');
                last.push_str(word);
            }
            _ if count == ARGUMENTS_LIMIT => break,
            _ => arguments.push(word.to_owned()),
        }
    }
    arguments.into_iter().map(|text| UsdtArgument { spec: parse_argument(machine, &text), text }).collect()
}

fn parse_argument(machine: Machine, text: &str) -> Result<ArgumentSpec, ArgumentError> {
    let (size, operand) = text.split_once('@').ok_or_else(|| ArgumentError::Malformed(text.to_owned()))?;
    let size = match size {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        "-1" => -1,
        "-2" => -2,
        "-4" => -4,
        "-8" => -8,
        other => return Err(ArgumentError::Size(other.to_owned())),
    };
    machine.usdt_operand(size, operand.trim())
}

/// Reads a number as an assembler prints it: decimal or hexadecimal, with 64 bits, signed or unsigned.
pub(super) fn parse_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { Some(magnitude as i64) }
}

#[cfg(test)]
mod tests;
