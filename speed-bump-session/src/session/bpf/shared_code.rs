//! Finds functions that share their code with others: slowing down one function slows down all of them.
//!
//! Linkers merge functions with the same instructions (`--icf`), and programs give one function several
//! names. Both look the same in a file.

use crate::{
    demangle::for_people,
    probe::plan::{Plan, PlannedFunction},
    targets::Targets,
};

/// The most names of one function that we report.
const NAMED: usize = 3;

/// A sentence for each selected function whose code other functions share. Names only functions that no
/// target selects.
pub(super) fn shared_code(plan: &Plan, targets: &Targets) -> Vec<String> {
    plan.functions.iter().filter_map(|function| shared(function, targets)).collect()
}

fn shared(function: &PlannedFunction, targets: &Targets) -> Option<String> {
    let selected = &function.selected;
    let others: Vec<String> =
        function.symbols.iter().filter_map(|of| unasked(function, of, targets)).collect();
    let shown = others.get(..NAMED).unwrap_or(&others).join("`, `");
    let more = match others.len().checked_sub(NAMED + 1) {
        Some(more) => format!(" and {} more", more + 1),
        None => String::new(),
    };
    let name = for_people(&selected.name).unwrap_or_else(|| selected.name.clone());
    (!others.is_empty()).then(|| {
        format!(
            "`{name}` of {} is one code with `{shown}`{more} (the linker has folded them, or they are names \
             of one function): calls by any of these names are counted and delayed",
            selected.file.display()
        )
    })
}

/// Another symbol of a function in readable form, if its name really differs and no target selects it.
fn unasked(function: &PlannedFunction, symbol: &str, targets: &Targets) -> Option<String> {
    let name = &function.selected.name;
    let own = for_people(name).unwrap_or_else(|| name.clone());
    let other = for_people(symbol).unwrap_or_else(|| symbol.to_owned());
    // Several symbols can be one constructor in the source, and a C library also exports functions under
    // internal names.
    let bare = |name: &str| name.trim_start_matches('_').to_owned();
    if own == other || bare(&own) == bare(&other) || symbol.starts_with("__") {
        return None;
    }
    let file = function.selected.file.to_string_lossy();
    let is_asked = targets.native_in(&file).select([symbol, &*other]).winner.is_some();
    (!is_asked).then_some(other)
}
