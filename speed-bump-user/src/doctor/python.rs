//! Which interpreters a process runs, and how calls of their functions could be seen.

use std::cell::LazyCell;

use super::Check;
use crate::{
    engine::bpf::Form,
    inject,
    kernel::KernelFacts,
    probe::cost::CostTable,
    probe::{
        resolve::python::{anonymous, list_room, perf_map_of},
        site::SiteKind,
    },
    process::{MappedFile, Process},
    python::{
        entry_source::{self, EntrySource, Facts, Injection},
        helper::words,
        interpreter::{self, Interpreter},
    },
};

/// A check for each interpreter; one that is skipped if there is none.
pub fn checks(process: &Process, kernel: &KernelFacts) -> Vec<Check> {
    let mappings = match process.mappings() {
        Ok(mappings) => mappings,
        Err(error) => return vec![Check::skip("Python", error.to_string())],
    };
    let has_trampolines = perf_map_of(process, &list_room())
        .ok()
        .and_then(|mut map| map.list(|| anonymous(process)).ok())
        .is_some_and(|entries| !entries.is_empty());
    // Measured when there is an interpreter to measure for; without the privilege only the costs are not
    // said.
    let calibration = LazyCell::new(|| crate::calibrate::measure(kernel).ok());
    let kernel_tells = Form::single(kernel).has_python_programs();
    let check = |mapped| {
        check(process, mapped, has_trampolines, kernel_tells, &|| LazyCell::force(&calibration).as_ref())
    };
    let checks: Vec<Check> = mappings.files.iter().filter_map(check).collect();
    if let Err(error) = process.is_still_there() {
        return vec![Check::skip("Python", error.to_string())];
    }
    if checks.is_empty() {
        return vec![Check::skip("Python", "the process runs no CPython")];
    }
    checks
}

fn check<'c>(
    process: &Process,
    mapped: &MappedFile,
    has_trampolines: bool,
    kernel_tells: bool,
    calibration: &dyn Fn() -> Option<&'c CostTable>,
) -> Option<Check> {
    let open = mapped.open(process).ok()?;
    let path = mapped.path_in_process.display();
    let name = format!("Python in {path}");
    let interpreter = match interpreter::identify(open.file(), &mapped.path_in_process) {
        Ok(interpreter) => interpreter?,
        Err(error) => return Some(Check::warn(name, error.to_string(), "native and USDT targets work")),
    };
    let Interpreter { version, has_function_entry, has_jit, .. } = interpreter;
    let refusal = inject::would_try(process).err().map(|error| error.to_string());
    let injection = refusal.as_deref().map_or(Injection::Allowed, Injection::Refused);
    let facts = Facts { injection, version, has_trampolines, has_function_entry, has_jit, kernel_tells };
    Some(match entry_source::choose(&facts) {
        Ok(EntrySource::Helper) => Check::pass(
            name,
            format!(
                "CPython {version}; its functions are seen through the helper, which can be loaded into it; \
                 calls of functions that no target selects cost {}{}",
                words::unselected_call(version),
                matched(calibration())
            ),
        ),
        Ok(source) => match &refusal {
            Some(why) => Check::warn(
                name,
                format!(
                    "CPython {version}; its functions are seen through {source}, where every call of any \
                     function traps; the helper cannot be loaded into it"
                ),
                why.clone(),
            ),
            None => {
                let cost = calibration().map(|calibration| calibration.cost(SiteKind::Push).unselected);
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
    })
}

/// What calls of selected functions cost through the helper, where that could be measured.
fn matched(calibration: Option<&CostTable>) -> String {
    let Some(calibration) = calibration else { return String::new() };
    let cost = calibration.through_helper(calibration.stub());
    format!(", of functions that one selects about {} (measured here)", cost.unselected)
}
