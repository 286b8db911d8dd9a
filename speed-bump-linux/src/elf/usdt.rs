//! USDT probes: the notes that `<sys/sdt.h>` and its relatives leave in `.note.stapsdt`.
//!
//! Format: <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>. One note per place; several
//! notes of one provider and name are one probe with many locations.

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
/// Bytes of all notes: some 50,000 places. The largest known (QEMU's) have a tenth of it.
const NOTES_LIMIT: u64 = 4 << 20;
/// Arguments of one place: `<sys/sdt.h>` has no probe with more.
const ARGUMENTS_LIMIT: usize = 12;

/// The USDT probes of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsdtProbes {
    /// Locations that cannot be attached to, with the reason. A probe may have locations of both kinds.
    pub probes: Vec<UsdtProbe>,
    /// Locations that cannot be attached to, with the reason; a probe may have both kinds.
    pub refused: Vec<RefusedLocation>,
}

/// One probe: all places in the file where it fires.
#[derive(Clone, Debug, PartialEq)]
pub struct UsdtProbe {
    /// First part of the name: `python`, `libc`.
    pub provider: String,
    /// Second part of the name: `function__entry`.
    pub name: String,
    /// The places, by address; never empty.
    pub locations: Vec<UsdtLocation>,
}

/// One place where a probe fires.
#[derive(Clone, Debug, PartialEq)]
pub struct UsdtLocation {
    /// Address of the instruction (a nop).
    pub address: VirtualAddress,
    /// Where the instruction lies in the file: what a uprobe attaches to.
    pub offset: FileOffset,
    /// File offset of the semaphore: a 16-bit counter that the program tests before it fires the probe
    /// (`ref_ctr_offset` of the perf event). `None` when the probe always fires.
    pub semaphore: Option<FileOffset>,
    /// How to read the arguments, in order.
    pub arguments: Vec<UsdtArgument>,
}

/// One argument of a location.
#[derive(Clone, Debug, PartialEq)]
pub struct UsdtArgument {
    /// As the note writes it: `-4@%eax`.
    pub text: String,
    /// How the BPF program reads it, or why it cannot.
    pub spec: Result<ArgumentSpec, ArgumentError>,
}

/// Why an argument cannot be read. The probe itself still works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// Not of the form `SIZE@OPERAND`, or an operand that no assembler knows.
    #[error("argument `{0}` is not of the form SIZE@OPERAND")]
    Malformed(String),
    /// Not 1, 2, 4 or 8 bytes, or floating-point.
    #[error("argument size `{0}` is not supported: only integers of 1, 2, 4 and 8 bytes are")]
    Size(String),
    /// The address of a symbol is part of the operand.
    #[error("argument `{0}` names a symbol; only registers, constants and memory behind registers are read")]
    Symbolic(String),
    /// Not a general-purpose register.
    #[error("argument register `%{0}` is not a general-purpose register")]
    Register(String),
    /// Valid, but [`ArgumentSpec`] cannot express it.
    #[error("argument `{0}` cannot be read: {1}")]
    Unsupported(String, &'static str),
    /// We read no operands on this architecture.
    #[error("USDT arguments are not read on {0} yet")]
    Machine(&'static str),
}

/// A location that cannot be attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLocation {
    /// Provider; empty if unreadable.
    pub provider: String,
    /// Name; empty if unreadable.
    pub name: String,
    /// What keeps a probe from it.
    pub reason: LocationRefusal,
}

/// Why a location cannot be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationRefusal {
    /// The note is shorter than its fixed part, or its strings do not end.
    #[error("its note is malformed")]
    Malformed,
    /// The address of the probe is not in an executable segment.
    #[error("its address {0} is in no executable segment of the file")]
    NotCode(VirtualAddress),
    /// The semaphore is not in a writable part of the file, so we could not raise it.
    #[error("its semaphore at {0} is in no writable segment of the file, so the probe would never fire")]
    Semaphore(VirtualAddress),
}

impl ElfFile {
    /// Reads all USDT probes.
    ///
    /// Finds the notes through the section headers, since they are not loaded into memory. In a file without
    /// section headers it searches `PT_NOTE`.
    ///
    /// # Errors
    /// [`ElfError`] when the tables cannot be read. [`UsdtProbes::refused`] has the faults of single
    /// locations.
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
    /// Address of `.stapsdt.base` now; differs from the notes' value if the file was prelinked.
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
        // Padding at the end is not a note; everything else is.
        if data.iter().any(|byte| *byte != 0) {
            self.refuse("", "", LocationRefusal::Malformed);
        }
    }

    /// Three addresses, then provider, name and arguments, each ended by NUL.
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
            // A note repeated by the linker is one location: two uprobes there would count every call twice.
            locations.sort_by_key(|location| (location.address, location.semaphore));
            locations.dedup_by_key(|location| (location.address, location.semaphore));
            UsdtProbe { provider, name, locations }
        });
        UsdtProbes { probes: probes.collect(), refused: self.refused }
    }
}

/// Reads the arguments of a note, `-4@%eax 8@$5 …`. Operands may contain spaces (aarch64: `8@[sp, 16]`): a
/// word without `@` continues the one before. Arguments after the twelfth are ignored.
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

/// A number as an assembler prints it: decimal or hexadecimal, of 64 bits, signed or not.
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
