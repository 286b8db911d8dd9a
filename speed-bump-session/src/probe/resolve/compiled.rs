//! Explains Python targets that name functions of a compiled module, made by Cython or as another extension.
//! These functions are native code without interpreter frames.

use std::{borrow::Cow, path::Path};

use super::{elf_of, probe_file};
use crate::{
    elf::{Effort, Functions, SymbolName},
    process::{MappedFile, Process},
    targets::{Target, TargetKind, exact::plain_line},
};

/// The most lines that we suggest.
const PROPOSED: usize = 3;
/// The most compiled modules that we inspect. Scientific programs have hundreds of these.
const LOOKED_AT: usize = 1_024;
/// Prefixes of the C functions that Cython makes for a function of the module: its entry from Python, its
/// entry from C, and its body.
const CYTHON: [&str; 3] = ["__pyx_pw_", "__pyx_f_", "__pyx_pf_"];

/// A remark on a Python target that selects nothing but names functions of a compiled module. The remark has
/// lines that select these functions. `None` also if `effort` leaves no time for this.
pub fn compiled(process: &Process, target: &Target, effort: &Effort) -> Option<String> {
    if target.kind != TargetKind::Python {
        return None;
    }
    let mappings = process.mappings().ok()?;
    let modules = mappings.files.iter().filter_map(|mapped| Some((mapped, module_of(mapped)?)));
    let is_named = |file: &str| target.is_in_module(file) && target.module.as_str() != "*";
    let mut named = None;
    for (mapped, sources) in modules.take(LOOKED_AT) {
        // If the module is `*`, the function's name must decide.
        let is_named = sources.iter().any(|file| is_named(file));
        if !is_named && target.module.as_str() != "*" {
            continue;
        }
        let Ok(functions) = effort.read(|| functions_of(process, mapped)) else { break };
        let Some(functions) = functions else { continue };
        let meant = meant(&functions, target);
        if is_named || !meant.is_empty() {
            named = Some((mapped, functions, meant));
            break;
        }
    }
    let (mapped, functions, meant) = named?;
    let path = mapped.path_in_process.to_string_lossy();
    let mut all = functions.functions().iter().flat_map(|of| of.names.iter().map(SymbolName::as_str));
    let by = if all.any(|name| name.starts_with("__pyx_")) { "by Cython" } else { "as an extension" };
    let lines: Vec<String> =
        meant.iter().take(PROPOSED).map(|name| plain_line(TargetKind::Native, &path, name)).collect();
    let way_out = if lines.is_empty() {
        format!("targets like `{}` select them", plain_line(TargetKind::Native, &path, "NAME"))
    } else {
        format!("use `{}`", lines.join("`, `"))
    };
    Some(format!(
        "{path} is a module that was compiled ({by}): its functions are native code, which the interpreter \
         does not run and no Python target selects; {way_out}"
    ))
}

/// If a mapped file is a compiled module, returns the source files from which it may have been compiled. For
/// `/x/m.cpython-311-x86_64-linux-gnu.so` these are `/x/m.py` and `/x/m.pyx`.
fn module_of(mapped: &MappedFile) -> Option<[String; 2]> {
    let path = &mapped.path_in_process;
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(".so")?.split('.').next().filter(|stem| !stem.is_empty())?;
    let source = path.parent().unwrap_or(Path::new("/")).join(stem);
    let source = source.to_string_lossy();
    Some([format!("{source}.py"), format!("{source}.pyx")])
}

/// The functions of a file, if the file is a Python module. A Python module has an initialiser.
fn functions_of(process: &Process, mapped: &MappedFile) -> Option<Functions> {
    let file = probe_file(process, mapped).ok()?;
    let functions = elf_of(&file).ok()?.functions().ok()?;
    let is_initialiser = |name: &SymbolName| name.as_str().starts_with("PyInit_");
    let is_module = functions.functions().iter().any(|function| function.names.iter().any(is_initialiser));
    is_module.then_some(functions)
}

/// The symbols of the functions whose Python names a target matches.
fn meant(functions: &Functions, target: &Target) -> Vec<String> {
    let Ok(name) = target.name.last_component() else { return Vec::new() };
    let name: Cow<'_, _> = name;
    let names = functions.functions().iter().map(|function| function.names.canonical().as_str());
    let is_meant = |symbol: &&str| {
        let rest = CYTHON.iter().find_map(|prefix| symbol.strip_prefix(prefix));
        rest.is_some_and(|rest| python_names(rest).any(|python| name.matches(python)))
    };
    let mut meant: Vec<String> = names.filter(is_meant).map(str::to_owned).collect();
    // Entries from Python come first.
    let order = |symbol: &str| CYTHON.iter().position(|prefix| symbol.starts_with(prefix));
    meant.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.cmp(b)));
    meant
}

/// The names that a Cython symbol may have in Python: the text after each `_` and the digits that follow it
/// (Cython's `mangle`: `5mymod_3Cls_1run` is the function `run`).
fn python_names(symbol: &str) -> impl Iterator<Item = &str> {
    let parts = symbol.match_indices('_').filter_map(|(at, _)| symbol.get(at + 1..));
    parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_python_is_among_the_parts_of_cythons() {
        let of = |symbol: &'static str| python_names(symbol).collect::<Vec<_>>();
        assert_eq!(of("5mymod_1run_all"), ["run_all", "all"]);
        assert_eq!(of("5mymod_3Cls_1run"), ["Cls_1run", "run"]);
        assert_eq!(of("run"), [""; 0]);
    }
}
