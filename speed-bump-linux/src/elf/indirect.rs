//! Finds the code that an IFUNC resolved to in a process, from the slots that the dynamic loader has filled.
//!
//! Only slots for callers of the function have the address that the resolver chose. Callers in the function's
//! own file have an `IRELATIVE` slot, and callers in other files a `JUMP_SLOT` or `GLOB_DAT` slot. If
//! nobody has called the function yet, perhaps no slot is filled, and there is no result.

use std::io;

use object::LittleEndian;

use super::{
    error::ElfError,
    file::ElfFile,
    functions::IndirectFunction,
    machine::SlotRelocation,
    name::TableKind,
    segments::LoadBias,
    tables::{SymbolTable, Tables},
};
use crate::units::VirtualAddress;

/// A file as loaded in a process.
#[derive(Clone, Copy, Debug)]
pub struct Module<'e> {
    /// The file.
    pub elf: &'e ElfFile,
    /// The difference between addresses in this process and addresses in the file.
    pub bias: LoadBias,
}

/// Fills the buffer with memory of the process, from an address on.
pub type ReadMemory<'r> = &'r dyn Fn(VirtualAddress, &mut [u8]) -> io::Result<()>;

/// Finds the code that an IFUNC resolved to in a process.
///
/// `modules[home]` is the file that defines `function`. The other modules are the other files of the process
/// (its executable and libraries), in any order. Returns an address in the process. Mostly this is the
/// address of a function in `home`. Sometimes it is the address of a function in the vDSO (such as glibc's
/// `time`), which is no file and cannot have probes. Returns `None` if no slot is filled yet, or no module
/// calls the function.
///
/// # Errors
/// [`ElfError`] if we cannot read the relocations of `home`. If we cannot read another module or the memory
/// of a slot, we skip the module or slot.
pub fn resolve_indirect(
    function: &IndirectFunction,
    home: usize,
    modules: &[Module<'_>],
    read: ReadMemory<'_>,
) -> Result<Option<VirtualAddress>, ElfError> {
    let Some(home_module) = modules.get(home) else { return Ok(None) };
    let search = Search { function, home: *home_module, modules, read };
    if let Some(found) = search.slots_of(home_module, true)? {
        return Ok(Some(found));
    }
    let others = modules.iter().enumerate().filter(|(index, _)| *index != home);
    Ok(others.map(|(_, module)| search.slots_of(module, false)).find_map(|found| found.ok().flatten()))
}

struct Search<'a> {
    function: &'a IndirectFunction,
    home: Module<'a>,
    modules: &'a [Module<'a>],
    read: ReadMemory<'a>,
}

impl Search<'_> {
    /// The address in the first filled slot for the function in a module.
    fn slots_of(&self, module: &Module<'_>, is_home: bool) -> Result<Option<VirtualAddress>, ElfError> {
        let cache = module.elf.cache();
        let tables = Tables::read(module.elf, &cache)?;
        let symbols = tables.symbol_tables(&[TableKind::Dynamic])?;
        for (section, relocations) in tables.dynamic_relocations()? {
            let symbols = symbols.iter().find(|table| table.section == section);
            for relocation in relocations {
                let info = relocation.r_info.get(LittleEndian);
                // The macros ELF64_R_TYPE and ELF64_R_SYM.
                let (r_type, symbol) = ((info & 0xffff_ffff) as u32, (info >> 32) as usize);
                let stands = match module.elf.machine().slot_relocation(r_type) {
                    Some(SlotRelocation::Indirect) => {
                        is_home && relocation.r_addend.get(LittleEndian) as u64 == self.function.resolver.0
                    }
                    Some(SlotRelocation::Symbol) => symbols.is_some_and(|table| self.names(table, symbol)),
                    None => false,
                };
                if stands {
                    let slot = VirtualAddress(relocation.r_offset.get(LittleEndian));
                    if let Some(found) = self.value(module.bias.to_process(slot)) {
                        return Ok(Some(found));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Whether the symbol of a relocation is our function, by name and version.
    fn names(&self, table: &SymbolTable<'_>, index: usize) -> bool {
        let Some(symbol) = table.symbols.get(index) else { return false };
        let (Ok(text), Ok(version)) = (table.name(symbol), table.version(index)) else { return false };
        self.function.names.iter().any(|name| {
            let same_version = match (version, name.version()) {
                (Some(theirs), Some(ours)) => theirs.name == ours.name.as_bytes(),
                _ => true,
            };
            name.as_str().as_bytes() == text && same_version
        })
    }

    /// The address in a slot, if it is an implementation of the function. Before the first call, a slot may
    /// point to a stub, which is no implementation. A function of this name in another library (`LD_PRELOAD`)
    /// is none, either.
    fn value(&self, slot: VirtualAddress) -> Option<VirtualAddress> {
        let mut bytes = [0; 8];
        (self.read)(slot, &mut bytes).ok()?;
        let value = VirtualAddress(u64::from_le_bytes(bytes));
        let file_address = self.home.bias.to_file(value);
        if self.home.elf.segments().code_offset_of(file_address).is_some() {
            let implementation =
                file_address != self.function.resolver && !self.home.elf.code_sections().is_plt(file_address);
            return implementation.then_some(value);
        }
        let elsewhere = self
            .modules
            .iter()
            .any(|module| module.elf.segments().containing(module.bias.to_file(value)).is_some());
        // The address is in no file. If there is memory at all, it is the vDSO.
        (!elsewhere && (self.read)(value, &mut [0]).is_ok()).then_some(value)
    }
}

#[cfg(test)]
mod tests;
