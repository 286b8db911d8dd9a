//! Names like those that a target asks for: told where it selects nothing.

use super::{
    Resolver, elf_of, probe_file,
    python::{anonymous, list_room, perf_map_of},
};
use crate::{
    elf::ElfFile,
    process::Process,
    targets::{TargetIndex, TargetKind, Targets},
};

/// How many are told.
const TOLD: usize = 3;

impl Resolver {
    /// The names in a process that come nearest to what a target asks for, best first, as `module:name`.
    /// Empty where there is nothing to choose from. `loaded`: the Python functions that it is known to have.
    pub fn nearest(
        &self,
        process: &Process,
        target: TargetIndex,
        loaded: &[(String, String)],
    ) -> Vec<String> {
        nearest(&self.targets, process, target, loaded)
    }
}

/// As [`Resolver::nearest`], without a resolver.
pub fn nearest(
    targets: &Targets,
    process: &Process,
    target: TargetIndex,
    loaded: &[(String, String)],
) -> Vec<String> {
    let Some(target) = targets.get(target) else { return Vec::new() };
    let candidates = match target.kind {
        TargetKind::Python if !loaded.is_empty() => {
            let pairs = loaded.iter().map(|(module, name)| (module.as_str(), name.as_str()));
            return target.nearest(pairs, TOLD);
        }
        TargetKind::Python => python_names(process),
        TargetKind::Native => names(process, |elf| {
            let functions = elf.functions().ok()?;
            let names = functions.functions().iter().map(|function| &function.names);
            Some(names.map(|names| names.canonical().as_str().to_owned()).collect())
        }),
        TargetKind::Usdt => names(process, |elf| {
            let probes = elf.usdt_probes().ok()?.probes;
            Some(probes.iter().map(|probe| format!("{}:{}", probe.provider, probe.name)).collect())
        }),
    };
    let pairs = candidates.iter().map(|(module, name)| (module.as_str(), name.as_str()));
    target.nearest(pairs, TOLD)
}

/// The Python functions that a perf map lists; without one, none are known.
fn python_names(process: &Process) -> Vec<(String, String)> {
    let map = perf_map_of(process, &list_room());
    let entries = map.ok().and_then(|mut map| map.list(|| anonymous(process)).ok());
    entries.into_iter().flatten().map(|entry| (entry.filename, entry.qualname)).collect()
}

/// Names of each file that a process maps; a file that cannot be read has none.
fn names(process: &Process, of: impl Fn(&ElfFile) -> Option<Vec<String>>) -> Vec<(String, String)> {
    let mappings = process.mappings().unwrap_or_default();
    let of_file = |mapped| {
        let file = probe_file(process, mapped).ok()?;
        let path = file.path().to_string_lossy().into_owned();
        Some(of(&elf_of(&file).ok()?)?.into_iter().map(move |name| (path.clone(), name)).collect::<Vec<_>>())
    };
    mappings.files.iter().filter_map(of_file).flatten().collect()
}
