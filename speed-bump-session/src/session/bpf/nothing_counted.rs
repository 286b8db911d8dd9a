//! Finds possible causes if a session has counted nothing although its processes were running.

use std::collections::BTreeSet;

use super::{context::Context, phase::Processes};
use crate::{
    probe::{file::ProbeFile, resolve},
    process::Process,
    session::known::KnownFunctions,
    stats::report::SessionReport,
    targets::TargetKind,
    units::Nanos,
};

/// A process that ran for a shorter time, or for less than a hundredth of the session, counts as idle.
const MIN_RAN: Nanos = Nanos(20_000_000);
const MIN_PART: u64 = 100;
/// The most functions whose copies we search. For each function we read its file once more.
const LOOKED_AT: usize = 8;

/// Warns if the session counted no call although the processes ran long enough.
pub(super) fn explain_nothing(
    ran: Nanos,
    report: &SessionReport,
    processes: &Processes,
    context: &mut Context,
) {
    let Some(functions) = without_calls(report) else { return };
    let lasted = Nanos::from(context.state.started.elapsed());
    if ran < MIN_RAN || ran.0 < lasted.0 / MIN_PART {
        return;
    }
    let mut causes: Vec<String> = moved_since(processes).into_iter().collect();
    causes.extend(copies(processes, context));
    causes.extend(children_left_out(processes, context));
    if report.targets.iter().any(|of| of.kind == TargetKind::Python && !of.functions.is_empty()) {
        causes.extend(numba(processes));
    }
    if report.targets.iter().any(|of| of.caller.is_some() && !of.functions.is_empty()) {
        causes.push(
            "only functions that `caller=` does not name called them (a tail call and an inlined function \
             have the function around them as caller)"
                .to_owned(),
        );
    }
    let native = report.targets.iter().any(|of| of.kind == TargetKind::Native && !of.functions.is_empty());
    causes.push(if native {
        "nothing called them, or the compiler has put their code into what calls them (inlining)".to_owned()
    } else {
        "nothing called them".to_owned()
    });
    let which = if functions == 1 {
        "the selected function".to_owned()
    } else {
        format!("any of the {functions} selected functions")
    };
    context.warn(format!(
        "no call of {which} was counted, while the processes ran for {ran}. Possible causes: {}",
        causes.join("; or ")
    ));
}

/// Files whose code processes have replaced with other memory since the attach.
fn moved_since(processes: &Processes) -> BTreeSet<String> {
    let mut moved = BTreeSet::new();
    for (_, covered) in processes.iter() {
        let Ok(mappings) = covered.process.mappings() else { continue };
        for group in covered.groups.iter().map(|of| &of.group) {
            let file = mappings.files.iter().find(|mapped| mapped.identity == group.file.identity());
            let is_run = |offset| file.is_some_and(|file| file.addresses_of(offset).next().is_some());
            if !group.sites.is_empty() && !group.sites.iter().any(|site| is_run(site.offset)) {
                moved.insert(format!(
                    "process {} no longer runs {} from the file: it has put other memory in its place, \
                     or unloaded it, since the attach",
                    covered.process.pid(),
                    group.file.path().display()
                ));
            }
        }
    }
    moved
}

/// Copies that the compiler has made of covered functions for some callers.
fn copies(processes: &Processes, context: &Context) -> Vec<String> {
    let known = context.state.doses().functions.known().clone();
    let files = processes.iter().flat_map(|(_, covered)| &covered.groups).map(|of| &of.group.file);
    let mut looked: BTreeSet<&std::path::Path> = BTreeSet::new();
    let mut causes = Vec::new();
    for file in files {
        if looked.insert(file.path()) && looked.len() <= LOOKED_AT {
            causes.extend(copies_in(file, &known));
        }
    }
    causes
}

/// If numba is loaded, it may compile functions without a decorator that shows this.
fn numba(processes: &Processes) -> Option<String> {
    let is_numbas = |process: &Process| {
        let files = process.mappings().unwrap_or_default().files;
        files.iter().any(|file| file.path_in_process.components().any(|part| part.as_os_str() == "numba"))
    };
    let is_loaded = processes.iter().any(|(_, covered)| is_numbas(&covered.process));
    is_loaded.then(|| "numba has compiled them: compiled code runs no Python function".to_owned())
}

fn children_left_out(processes: &Processes, context: &Context) -> Option<String> {
    if context.settings.children {
        return None;
    }
    let children = processes.iter().filter_map(|(_, covered)| covered.process.descendants().ok());
    let children = children.map(|found| found.processes.len()).sum::<usize>();
    (children > 0).then(|| format!("the {children} child processes call them, which are not covered"))
}

/// The number of selected functions, if none of them had a call.
fn without_calls(report: &SessionReport) -> Option<usize> {
    let functions = report.targets.iter().map(|target| target.functions.len()).sum();
    (functions > 0 && report.targets.iter().all(|target| target.calls == 0)).then_some(functions)
}

fn copies_in(file: &ProbeFile, known: &KnownFunctions) -> Option<String> {
    let functions = known.iter().map(|(_, function)| function);
    let names: Vec<&str> =
        functions.filter(|of| of.file == file.path()).map(|of| of.name.as_str()).take(LOOKED_AT).collect();
    let copies = resolve::copies(file, &names);
    (!copies.is_empty()).then(|| {
        format!("the compiler has made copies for some callers, select those too: {}", copies.join(", "))
    })
}
