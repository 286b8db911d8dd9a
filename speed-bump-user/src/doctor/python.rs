//! The Python interpreters of a process, and how the tool would see calls of their functions.

use super::{Check, machine::Machine};
use crate::{
    engine::bpf::Form,
    inject::{self, InjectError, Trial},
    probe::cost::CostTable,
    probe::{
        resolve::python::{anonymous, facts, list_room, perf_map_of},
        site::SiteKind,
    },
    process::{MappedFile, Process},
    python::{
        entry_source::{self, EntrySource, Injection},
        helper::words,
        interpreter::{self, Interpreter},
    },
};

/// A check for each interpreter; a skipped one if there is none.
pub(crate) fn checks(process: &Process, machine: &Machine) -> Vec<Check> {
    let mappings = match process.mappings() {
        Ok(mappings) => mappings,
        Err(error) => return vec![Check::skip("Python", error.to_string())],
    };
    let has_trampolines = perf_map_of(process, &list_room())
        .ok()
        .and_then(|mut map| map.list(|| anonymous(process)).ok())
        .is_some_and(|entries| !entries.is_empty());
    // If we could not measure this machine's costs, the checks do not give any.
    let costs = machine.attach.as_ref().ok();
    let form = costs.map_or_else(|| Form::single(&machine.kernel), CostTable::form);
    let found = mappings.files.iter().filter_map(|mapped| identify(process, mapped)).collect::<Vec<_>>();
    // We try an injection only if there is an interpreter.
    let tried = (!found.is_empty()).then(|| inject::would_try(process));
    let checks: Vec<Check> = found
        .iter()
        .map(|(name, found)| match (found, &tried) {
            (Ok(interpreter), Some(tried)) => {
                check(name.clone(), interpreter, tried, has_trampolines, form, costs)
            }
            (Err(why), _) => Check::warn(name, why, "native and USDT targets work"),
            (Ok(_), None) => Check::skip(name, "not checked"),
        })
        .collect();
    if let Err(error) = process.is_still_there() {
        return vec![Check::skip("Python", error.to_string())];
    }
    if checks.is_empty() {
        return vec![Check::skip("Python", "the process runs no CPython")];
    }
    checks
}

/// The name of the check for a mapped file, with the file's interpreter, or with the reason why we cannot
/// identify the interpreter. `None` if the file contains none.
fn identify(process: &Process, mapped: &MappedFile) -> Option<(String, Result<Interpreter, String>)> {
    let open = mapped.open(process).ok()?;
    let name = format!("Python in {}", mapped.path_in_process.display());
    let identified = interpreter::identify(open.file(), &mapped.path_in_process);
    Some((name, identified.map_err(|error| error.to_string()).transpose()?))
}

fn check(
    name: String,
    interpreter: &Interpreter,
    tried: &Result<Trial, InjectError>,
    has_trampolines: bool,
    form: Form,
    costs: Option<&CostTable>,
) -> Check {
    let version = interpreter.version;
    let refusal = tried.as_ref().err().map(ToString::to_string);
    let injection = refusal.as_deref().map_or(Injection::Allowed, Injection::Refused);
    match entry_source::choose(&facts(interpreter, injection, has_trampolines, form)) {
        Ok(EntrySource::Helper) if matches!(tried, Ok(Trial::FiltersUnseen)) => Check::skip(
            name,
            format!(
                "CPython {version}; it is unknown whether its seccomp filter allows the helper: reading the \
                 filter would interrupt the calls in which all its threads wait; an attach finds out"
            ),
        ),
        Ok(EntrySource::Helper) => Check::pass(
            name,
            format!(
                "CPython {version}; its functions are seen through the helper, which can be loaded; calls of \
                 functions that no target selects cost {}{}",
                words::unselected_call(version),
                matched(costs)
            ),
        ),
        Ok(source) => match &refusal {
            Some(why) => Check::warn(
                name,
                format!(
                    "CPython {version}; its functions are seen through {source}, where every call of any \
                     function traps; the helper cannot be loaded"
                ),
                why.clone(),
            ),
            None => {
                let cost = costs.map(|costs| costs.cost(SiteKind::Push).unselected);
                let cost = cost.map_or_else(String::new, |cost| {
                    format!("; every call of any function costs {cost} or more")
                });
                Check::pass(name, format!("CPython {version}; its functions are seen through {source}{cost}"))
            }
        },
        Err(why) => Check::warn(
            name,
            format!("CPython {version}; its functions cannot be targets in this process"),
            why.to_string(),
        ),
    }
}

/// The cost of calls of selected functions through the helper, if it could be measured.
fn matched(costs: Option<&CostTable>) -> String {
    let Some(costs) = costs else { return String::new() };
    let cost = costs.through_helper(costs.stub());
    format!("; calls of selected functions cost about {} (measured here)", cost.unselected)
}
