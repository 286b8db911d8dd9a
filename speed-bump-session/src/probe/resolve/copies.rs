//! Finds the copies that a compiler makes of a function for some of its callers.

use super::elf_of;
use crate::{elf::SymbolName, probe::file::ProbeFile};

/// The most copies that we name.
const NAMED: usize = 4;
/// GCC and LLVM add these suffixes to a function's name for a copy that they call in its place.
const SUFFIXES: [&str; 5] = [".constprop.", ".isra.", ".part.", ".specialized.", ".llvm."];

/// The functions of a file that are copies of functions with these names. Empty if we cannot read the file.
pub fn copies(file: &ProbeFile, names: &[&str]) -> Vec<String> {
    let functions = elf_of(file).ok().and_then(|elf| elf.functions().ok()).unwrap_or_default();
    let all = functions.functions().iter().flat_map(|function| function.names.iter().map(SymbolName::as_str));
    let is_copy = |name: &&str| {
        let rest = |of: &&str| name.strip_prefix(*of);
        names.iter().filter_map(rest).any(|rest| SUFFIXES.iter().any(|suffix| rest.starts_with(suffix)))
    };
    all.filter(is_copy).take(NAMED).map(str::to_owned).collect()
}
