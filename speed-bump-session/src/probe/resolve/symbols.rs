//! Finds functions as file and symbol, for the kernel module, which finds their addresses itself.
//!
//! The module opens a path in our mount namespace, searches the file's own symbol tables, and takes the first
//! symbol that fits. So we offer a function only under two conditions. The path must lead to the file that
//! the process maps, and the symbol must lead to the function that the target selects.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{FileError, elf_of, indirect, moved, probe_file, unread};
use crate::{
    elf::{
        Binding, Effort, ElfFile, FunctionSymbol, Functions, IndirectFunction, Named, SymbolName, TableKind,
    },
    kernel::KernelVersion,
    probe::{
        code::CodeFile,
        file::{FileId, ProbeFile},
        plan::{Remark, SelectedFunction},
        site::{self, Analysis, CodeMap, Exactness, FunctionCode, SiteKind},
    },
    process::{MappedFile, Mappings, Process, ProcessError, mapped_file::FileIdentity},
    targets::{TargetIndex, TargetKind, Targets},
    units::{FileOffset, VirtualAddress},
};

/// The most functions of one file that we check. The module has room for 64 functions.
const FUNCTIONS_LIMIT: usize = 4_096;
/// The most files whose functions we remember.
const FILES_KNOWN: usize = 64;

/// From this kernel version on, the kernel rewrites a probed 5-byte nop to a call, which may kill forked
/// children.
const REWRITES_NOP5: KernelVersion = KernelVersion::new(6, 18);

/// A function that we can give to the module as file and symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFunction {
    /// The function as reports name it.
    pub selected: SelectedFunction,
    /// Our own path to the file.
    pub path: PathBuf,
    /// The symbol by which the module finds the function.
    pub symbol: String,
    /// The function's address, as in the file.
    pub address: VirtualAddress,
    /// The number of the file in mappings.
    pub identity: FileIdentity,
}

/// What the targets select in one process.
#[derive(Clone, Debug, Default)]
pub struct NamedFunctions {
    /// One for each function that a target selects.
    pub functions: Vec<NamedFunction>,
    /// Other remarks.
    pub remarks: Vec<Remark>,
    /// The offsets of the functions in each file.
    pub places: Vec<(Arc<ProbeFile>, Vec<FileOffset>)>,
    /// Remarks on files that targets name and the process runs, but to which no path leads.
    pub out_of_reach: Vec<Remark>,
}

/// Finds functions in processes, all with the same targets. Only targets for native functions count.
#[derive(Debug)]
pub struct SymbolResolver {
    targets: Arc<Targets>,
    avoids_nop5: bool,
    /// The functions in each file. The key is the file, and whether the process has a shadow stack, which
    /// forbids some sites.
    files: RefCell<HashMap<(FileId, bool), Arc<OfFile>>>,
    effort: Effort,
}

/// What the targets select in one file. The selection is the same in every process that maps the file.
#[derive(Debug)]
struct OfFile {
    elf: ElfFile,
    functions: Vec<(SelectedFunction, String, VirtualAddress)>,
    places: Vec<FileOffset>,
    indirect: Vec<(TargetIndex, IndirectFunction)>,
    remarks: Vec<Remark>,
}

impl SymbolResolver {
    /// A resolver for this machine.
    pub fn new(targets: Arc<Targets>) -> Self {
        let avoids_nop5 = KernelVersion::running() >= REWRITES_NOP5;
        Self { targets, avoids_nop5, files: RefCell::default(), effort: Effort::default() }
    }

    /// The time that is left for reading files.
    pub fn effort(&self) -> &Effort {
        &self.effort
    }

    /// The targets of the selection.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The targets, for sharing.
    pub fn shared_targets(&self) -> Arc<Targets> {
        Arc::clone(&self.targets)
    }

    /// Selects with other targets from now on.
    pub fn set_targets(&mut self, targets: Arc<Targets>) {
        self.targets = targets;
        self.files.get_mut().clear();
    }

    /// Finds what the targets select in a process.
    ///
    /// # Errors
    /// We cannot inspect the process. If we cannot read a single file, this is no error, but a remark.
    pub fn resolve(&self, process: &Process) -> Result<NamedFunctions, ProcessError> {
        let mut found = NamedFunctions::default();
        let mappings = process.mappings()?;
        let shadow_stack = process.status()?.shadow_stack;
        for mapped in mappings.files.iter().chain(&mappings.moved) {
            let path = mapped.path_in_process.to_string_lossy();
            if self.targets.native_in(&path).is_empty() {
                continue;
            }
            if let Err(why) = self.add_file(process, &mappings, mapped, shadow_stack, &mut found) {
                let targets = self
                    .targets
                    .iter()
                    .filter(|(_, target)| target.kind == TargetKind::Native && target.module.matches(&path));
                let remarks = targets.map(|(index, _)| Remark {
                    target: Some(index),
                    text: format!("nothing can be selected in {path}: {why}"),
                });
                let remarks: Vec<Remark> = remarks.collect();
                if why.is_out_of_reach() {
                    found.out_of_reach.extend(remarks.iter().cloned());
                }
                found.remarks.extend(remarks);
            }
        }
        process.is_still_there()?;
        Ok(found)
    }

    fn add_file(
        &self,
        process: &Process,
        mappings: &Mappings,
        mapped: &MappedFile,
        shadow_stack: bool,
        found: &mut NamedFunctions,
    ) -> Result<(), FileError> {
        let file = probe_file(process, mapped)?;
        let key = (file.id(), shadow_stack);
        let known = self.files.borrow().get(&key).cloned();
        let of_file = match known {
            Some(known) => known,
            None => {
                let of_file = Arc::new(
                    self.effort
                        .read(|| self.look_into(&file, shadow_stack))
                        .map_err(|why| unread(&file, why))??,
                );
                let mut files = self.files.borrow_mut();
                if files.len() == FILES_KNOWN {
                    files.clear();
                }
                files.insert(key, Arc::clone(&of_file));
                of_file
            }
        };
        found.remarks.extend(of_file.remarks.iter().cloned());
        let indirect =
            indirect::explain(&of_file.elf, file.path(), &of_file.indirect, process, mappings, &self.effort);
        found
            .remarks
            .extend(indirect.into_iter().map(|(target, text)| Remark { target: Some(target), text }));
        let Some(path) = reached(process, &file) else {
            let path = file.path().display();
            let text = format!(
                "{path} is no longer the file that process {} runs, or has no name: restart the process, or \
                 use --engine bpf",
                process.pid()
            );
            let mut targets: Vec<_> =
                of_file.functions.iter().map(|(selected, ..)| selected.target).collect();
            targets.dedup();
            found.remarks.extend(
                targets.into_iter().map(|target| Remark { target: Some(target), text: text.clone() }),
            );
            return Ok(());
        };
        let is_run = |(_, _, address): &&(SelectedFunction, String, VirtualAddress)| {
            let offset = of_file.elf.segments().code_offset_of(*address);
            offset.is_some_and(|offset| mapped.addresses_of(offset).next().is_some())
        };
        for (selected, ..) in of_file.functions.iter().filter(|function| !is_run(function)) {
            let why = moved::why(mappings.anonymous.iter().any(|memory| !memory.is_the_kernels()), process);
            let text = format!("{} of {} cannot be probed: {why}", selected.name, file.path().display());
            let remark = Remark { target: Some(selected.target), text };
            found.out_of_reach.push(remark.clone());
            found.remarks.push(remark);
        }
        let run = of_file.functions.iter().filter(is_run);
        found.functions.extend(run.map(|(selected, symbol, address)| NamedFunction {
            selected: selected.clone(),
            path: path.clone(),
            symbol: symbol.clone(),
            address: *address,
            identity: mapped.identity,
        }));
        found.places.push((Arc::new(file), of_file.places.clone()));
        Ok(())
    }

    fn look_into(&self, file: &ProbeFile, shadow_stack: bool) -> Result<OfFile, FileError> {
        let elf = elf_of(file)?;
        let tables = elf.functions()?;
        let code_file = CodeFile::new(elf_of(file)?);
        let code = code_file.code()?;
        let path = file.path().to_string_lossy().into_owned();
        let matcher = self.targets.native_in(&path);
        let mut of_file = OfFile {
            elf,
            functions: Vec::new(),
            places: Vec::new(),
            indirect: Vec::new(),
            remarks: Vec::new(),
        };
        let (leads, forms) = (Leads::new(&tables), matcher.forms());
        for (symbol, selection) in matcher.select_all(tables.named_where(|name| forms.may_matter(name))) {
            let Some(target) = selection.winner else { continue };
            let function = match symbol {
                Named::Function(_) if of_file.functions.len() + of_file.remarks.len() == FUNCTIONS_LIMIT => {
                    continue;
                }
                Named::Function(function) => function,
                Named::Indirect(function) => {
                    of_file.indirect.push((target, function.clone()));
                    continue;
                }
                Named::Refused(_) => continue,
            };
            let named = leads.name_of(function).and_then(|symbol| {
                let exactness = self.check_entry(&code, function, shadow_stack)?;
                Ok((symbol, exactness))
            });
            match named {
                Ok((symbol, exactness)) => {
                    if exactness == Exactness::Repeats {
                        let text = format!("{symbol} in {path} is slowed down {exactness}");
                        of_file.remarks.push(Remark { target: Some(target), text });
                    }
                    let name = symbol.to_owned();
                    let file = file.path().to_owned();
                    let selected = SelectedFunction { target, name, file, line: None };
                    of_file.functions.push((selected, symbol.to_owned(), function.address));
                    of_file.places.extend(of_file.elf.segments().code_offset_of(function.address));
                }
                Err(why) => {
                    let name = function.names.canonical().as_str();
                    let text = format!("{name} in {path} is left out: {why}");
                    of_file.remarks.push(Remark { target: Some(target), text });
                }
            }
        }
        code_file.check()?;
        Ok(of_file)
    }

    /// Checks that a function's first instruction can have a breakpoint, because the module uses no other
    /// site. Returns how often a call hits the breakpoint.
    fn check_entry(
        &self,
        code: &CodeMap<'_>,
        function: &FunctionSymbol,
        shadow_stack: bool,
    ) -> Result<Exactness, String> {
        let here =
            FunctionCode { map: code, entry: function.address, size: Some(function.size), shadow_stack };
        let Analysis { candidates, .. } = site::analyse(&here).map_err(|refusal| refusal.to_string())?;
        let Some(entry) = candidates.first() else { return Err("it has no instructions".to_owned()) };
        if let Some(exclusion) = &entry.excluded {
            return Err(format!("its first instruction is `{}`, and {exclusion}", entry.instruction));
        }
        if self.avoids_nop5 && entry.kind == SiteKind::Nop5 {
            return Err(
                "its first instruction is a 5-byte nop, which this kernel rewrites to a call that forked \
                 children may die of"
                    .to_owned(),
            );
        }
        Ok(entry.exactness)
    }
}

/// Our own path to exactly this file: the process's path, this path below the process's root, or a path that
/// we found elsewhere. The module opens the path again, and the process may change it meanwhile. So the code
/// that adds the function checks for a breakpoint in the process.
fn reached(process: &Process, file: &ProbeFile) -> Option<PathBuf> {
    let wanted = file.file().metadata().ok()?;
    let leads_there = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    };
    let below_root = file.path().strip_prefix("/").ok().map(|path| process.root().join(path));
    let elsewhere = file.elsewhere().map(Path::to_owned);
    [Some(file.path().to_owned()), below_root, elsewhere].into_iter().flatten().find(leads_there)
}

/// The addresses that the module may find for each symbol. If several symbols have one name, the module takes
/// the exported one, next the symbol of the default version, and then the first symbol.
struct Leads<'t>(BTreeMap<&'t str, (Rank, Vec<VirtualAddress>)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Local,
    OldVersion,
    Exported,
}

impl<'t> Leads<'t> {
    fn new(tables: &'t Functions) -> Self {
        let mut leads: BTreeMap<&str, (Rank, Vec<VirtualAddress>)> = BTreeMap::new();
        for function in tables.functions() {
            for name in function.names.iter().filter(|name| is_in_file(name)) {
                let rank = rank(name);
                let (best, places) = leads.entry(name.as_str()).or_insert((rank, Vec::new()));
                if rank > *best {
                    *best = rank;
                    places.clear();
                }
                if rank == *best && !places.contains(&function.address) {
                    places.push(function.address);
                }
            }
        }
        Self(leads)
    }

    /// A symbol that leads to this function and to no other.
    fn name_of(&self, function: &FunctionSymbol) -> Result<&'t str, String> {
        let leads_here = |name: &&SymbolName| {
            self.0.get(name.as_str()).is_some_and(|(_, places)| places.as_slice() == [function.address])
        };
        let mut own = function.names.iter().filter(|name| is_in_file(name)).peekable();
        if own.peek().is_none() {
            return Err("only debugging information names it, which the kernel module does not read; use \
                        --engine bpf"
                .to_owned());
        }
        let name = own.find(leads_here).and_then(|name| self.0.get_key_value(name.as_str()));
        name.map(|(name, _)| *name).ok_or_else(|| {
            "the file has several functions of this name, and the kernel module cannot be told which; use \
             --engine bpf"
                .to_owned()
        })
    }
}

fn rank(name: &SymbolName) -> Rank {
    match (name.binding(), name.version()) {
        (Binding::Local, _) => Rank::Local,
        (_, Some(version)) if !version.default => Rank::OldVersion,
        _ => Rank::Exported,
    }
}

/// Whether the file's own tables have the name in this form. In `.symtab`, names include versions.
fn is_in_file(name: &SymbolName) -> bool {
    match name.table() {
        TableKind::Dynamic => true,
        TableKind::Symbols => name.version().is_none(),
        TableKind::MiniDebugInfo | TableKind::DebugFile | TableKind::GoTable => false,
    }
}

#[cfg(test)]
mod tests;
