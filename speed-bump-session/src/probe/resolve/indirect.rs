//! Reports the function that an IFUNC resolved to in a process, if a target selects the IFUNC. We do not
//! probe IFUNCs.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{elf_of, probe_file};
use crate::{
    elf::{Effort, ElfFile, IndirectFunction, LoadBias, Module, resolve_indirect},
    process::{Mappings, Process},
    targets::TargetIndex,
    units::VirtualAddress,
};

/// A sentence for each IFUNC of the file `elf`, which the process maps as `path`.
pub(super) fn explain(
    elf: &ElfFile,
    path: &Path,
    selected: &[(TargetIndex, IndirectFunction)],
    process: &Process,
    mappings: &Mappings,
    effort: &Effort,
) -> Vec<(TargetIndex, String)> {
    if selected.is_empty() {
        return Vec::new();
    }
    let modules = modules(process, mappings, effort);
    let views: Vec<Module<'_>> = modules.iter().map(|(_, elf, bias)| Module { elf, bias: *bias }).collect();
    let home = modules.iter().position(|(module, _, _)| module == path);
    let memory = process.memory().ok();
    let read = |address: VirtualAddress, buffer: &mut [u8]| match &memory {
        Some(memory) => memory.read_exact(address, buffer).map_err(io::Error::other),
        None => Err(io::ErrorKind::PermissionDenied.into()),
    };
    let sentence = |function: &IndirectFunction| {
        let name = function.names.canonical().as_str();
        let resolve = || home.and_then(|home| resolve_indirect(function, home, &views, &read).ok().flatten());
        let address = match effort.read(resolve) {
            Ok(address) => address,
            Err(why) => {
                let path = path.display();
                return format!(
                    "{name} in {path} is an IFUNC, which is not probed; what it stands for: {why}"
                );
            }
        };
        let stands_for = match address {
            Some(address) => match describe(elf, path, mappings, address) {
                Some(name) => format!("in this process it resolved to {name}; name that"),
                None => format!(
                    "in this process it resolved to code at {address} that no symbol names: install the \
                     file's debug symbols, and name that function"
                ),
            },
            None => {
                "nothing in this process has called it yet, so what it stands for is not known".to_owned()
            }
        };
        format!(
            "{name} in {} is an IFUNC: its address is that of a resolver, which runs once, and is not \
             probed; {stands_for}",
            path.display()
        )
    };
    selected.iter().map(|(target, function)| (*target, sentence(function))).collect()
}

/// A name for an address in the process. There is one if the address's file has a symbol there, or if the
/// address lies in another file.
fn describe(elf: &ElfFile, path: &Path, mappings: &Mappings, address: VirtualAddress) -> Option<String> {
    let (mapped, offset) = mappings.file_at(address)?;
    if mapped.path_in_process != path {
        return Some(format!("{}+{offset}", mapped.path_in_process.display()));
    }
    let functions = elf.functions().ok()?;
    let function = functions.containing(elf.segments().code_address_of(offset)?)?;
    Some(format!("`{}`", function.names.canonical().as_str()))
}

/// All ELF files of the process that we can read, with their load bias.
fn modules(process: &Process, mappings: &Mappings, effort: &Effort) -> Vec<(PathBuf, ElfFile, LoadBias)> {
    let module = |mapped: &crate::process::MappedFile| {
        let elf = effort.read(|| elf_of(&probe_file(process, mapped).ok()?).ok()).ok()??;
        let range = mapped.executable_ranges().next()?;
        let bias = elf.segments().bias_of_mapping(range.start, range.offset, true)?;
        Some((mapped.path_in_process.clone(), elf, bias))
    };
    mappings.files.iter().filter_map(module).collect()
}
