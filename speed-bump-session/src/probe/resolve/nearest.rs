//! Finds names that are similar to the pattern of a target that selects nothing. The target's message lists
//! them.

use std::{borrow::Cow, collections::HashSet, path::Path};

use super::{
    Resolver, elf_of, probe_file,
    python::{anonymous, list_room, perf_map_of},
};
use crate::{
    bounds::NAME_BYTES,
    elf::{Effort, ElfFile, FunctionNames, Root},
    process::Process,
    targets::{Candidate, Target, TargetIndex, TargetKind, Targets},
};

/// How many names we report.
const TOLD: usize = 3;

impl Resolver {
    /// The names in a process that are most similar to the pattern of a target, the best first. Each name is
    /// a line that selects it. Empty if there are no names. `loaded` are Python functions that we know to be
    /// in the process.
    pub fn nearest(
        &self,
        process: &Process,
        target: TargetIndex,
        loaded: &[(String, String)],
    ) -> Vec<String> {
        nearest(&self.targets, process, target, loaded, &self.explaining)
    }

    /// The native functions in a process that are most similar to the caller of a native target.
    pub fn nearest_callers(&self, process: &Process, target: &Target) -> Vec<String> {
        let caller = target.as_caller();
        caller.map(|caller| nearest_to(&caller, process, &[], &self.explaining)).unwrap_or_default()
    }
}

/// See [`Resolver::nearest`]. If `effort` leaves no time for a file, we treat the file as if it had no names.
pub fn nearest(
    targets: &Targets,
    process: &Process,
    target: TargetIndex,
    loaded: &[(String, String)],
    effort: &Effort,
) -> Vec<String> {
    targets.get(target).map(|target| nearest_to(target, process, loaded, effort)).unwrap_or_default()
}

fn nearest_to(
    target: &Target,
    process: &Process,
    loaded: &[(String, String)],
    effort: &Effort,
) -> Vec<String> {
    let candidates = match target.kind {
        TargetKind::Python if !loaded.is_empty() => {
            let pairs = loaded.iter().map(|(module, name)| (module.as_str(), name.as_str()));
            return target.nearest(pairs, TOLD);
        }
        TargetKind::Python => python_names(process),
        TargetKind::Native => names(process, effort, |elf, path| {
            let functions = match Root::open(&process.root()) {
                Ok(root) => elf.functions_with_debug_files(&root, path, effort),
                Err(_) => elf.functions(),
            };
            Some(functions.ok()?.functions().iter().map(|function| names_of(&function.names)).collect())
        }),
        TargetKind::Usdt => names(process, effort, |elf, _| {
            let probes = elf.usdt_probes().ok()?.probes;
            Some(probes.iter().map(|probe| vec![format!("{}:{}", probe.provider, probe.name)]).collect())
        }),
    };
    let candidates = candidates.iter().filter_map(|(module, names)| {
        let (name, aliases) = names.split_first()?;
        Some(Candidate { module, name, aliases })
    });
    target.nearest(candidates, TOLD)
}

/// The function's full name in readable form, and all its other names.
fn names_of(names: &FunctionNames) -> Vec<String> {
    let full = names.canonical().demangled().map(String::from);
    let others = names.candidates().map(Cow::into_owned);
    let mut all: Vec<String> = full.into_iter().chain(others).collect();
    let mut seen = HashSet::new();
    all.retain(|name| name.len() <= NAME_BYTES && seen.insert(name.clone()));
    all
}

/// The Python functions in a perf map; empty if there is none.
fn python_names(process: &Process) -> Vec<(String, Vec<String>)> {
    let map = perf_map_of(process, &list_room());
    let entries = map.ok().and_then(|mut map| map.list(|| anonymous(process)).ok());
    entries.into_iter().flatten().map(|entry| (entry.filename, vec![entry.qualname])).collect()
}

/// The names in each file that a process maps. We find none in a file that we cannot read.
fn names(
    process: &Process,
    effort: &Effort,
    of: impl Fn(&ElfFile, &Path) -> Option<Vec<Vec<String>>>,
) -> Vec<(String, Vec<String>)> {
    let mappings = process.mappings().unwrap_or_default();
    let of_file = |mapped| {
        let file = probe_file(process, mapped).ok()?;
        let path = file.path().to_string_lossy().into_owned();
        let all = effort.read(|| of(&elf_of(&file).ok()?, file.path())).ok()??;
        Some(all.into_iter().map(move |names| (path.clone(), names)).collect::<Vec<_>>())
    };
    mappings.files.iter().chain(&mappings.moved).filter_map(of_file).flatten().collect()
}
