//! Targets that select nothing, and why.

use std::collections::HashSet;

use super::{
    PrepareError, Purpose,
    look::Planned,
    notice::{Notice, Reason, SelectsNothing},
};
use crate::{
    bounds::TARGETS_EXPLAINED,
    probe::{
        plan::{Plan, PythonPlan},
        resolve::{Resolver, compiled},
    },
    process::{MappedFile, Process},
    python::entry_source::EntrySource,
    targets::{Target, TargetIndex, TargetKind},
};

/// The most reasons for one process.
const REASONS: usize = 3;

/// A notice for each target that selects nothing. With `strict` this is an error instead.
pub(super) fn notices(
    strict: bool,
    resolver: &Resolver,
    planned: &[Planned],
    purpose: Purpose,
) -> Result<Vec<Notice>, PrepareError> {
    let nothing = nothing(resolver, planned, purpose);
    let explained = |(number, (index, target))| {
        selects_nothing(index, target, resolver, planned, number < TARGETS_EXPLAINED)
    };
    let nothing = nothing.enumerate().map(explained);
    let nothing: Vec<_> = nothing.collect();
    if strict && !nothing.is_empty() {
        return Err(PrepareError::NothingSelected(nothing));
    }
    if let Some(error) = no_python(resolver, planned) {
        return Err(error);
    }
    Ok(nothing.into_iter().map(Notice::SelectsNothing).collect())
}

/// Whether some target selects nothing in these processes, or we can make no Python function visible there.
pub(super) fn is_any(resolver: &Resolver, planned: &[Planned], purpose: Purpose) -> bool {
    nothing(resolver, planned, purpose).next().is_some() || no_python(resolver, planned).is_some()
}

/// The targets that select nothing.
fn nothing<'a>(
    resolver: &'a Resolver,
    planned: &'a [Planned],
    purpose: Purpose,
) -> impl Iterator<Item = (TargetIndex, &'a Target)> {
    let selecting: HashSet<TargetIndex> =
        planned.iter().flat_map(|planned| planned.plan.selecting()).collect();
    let without_caller = without_caller(resolver, planned);
    resolver.targets().iter().filter(move |(index, target)| {
        let index = *index;
        let selected = selecting.contains(&index) && !without_caller.contains(&index);
        // Unless we have listed the functions of a process, we learn of a function only when the process
        // calls it.
        let unknown = target.kind == TargetKind::Python
            && planned.iter().any(|planned| !is_known(&planned.plan, purpose));
        // If the functions are out of reach, the session does not start. That error gives the reason, so
        // there is no notice here.
        let says_so = purpose == Purpose::Attach && planned.iter().any(|of| of.plan.is_out_of_reach(index));
        !selected && !unknown && !says_so
    })
}

/// The targets with a caller that is in no process whose functions we listed.
fn without_caller(resolver: &Resolver, planned: &[Planned]) -> Vec<TargetIndex> {
    let of_kind = |kind| {
        let found =
            planned.iter().filter_map(|planned| planned.callers_found(kind)).reduce(|all, of| all | of);
        found.map(|found| resolver.targets().without_caller(kind, found)).unwrap_or_default()
    };
    [TargetKind::Python, TargetKind::Native].into_iter().flat_map(of_kind).collect()
}

/// Whether we know now which Python functions a process has.
fn is_known(plan: &Plan, purpose: Purpose) -> bool {
    match plan.python {
        PythonPlan::Source { source: EntrySource::Helper, .. } => purpose == Purpose::List,
        PythonPlan::Source { source, .. } => source.lists_functions(),
        PythonPlan::NotAsked | PythonPlan::Impossible(_) => true,
    }
}

/// The error if all targets are Python functions, and we can make none of these visible in any process.
fn no_python(resolver: &Resolver, planned: &[Planned]) -> Option<PrepareError> {
    if resolver.targets().iter().any(|(_, target)| target.kind != TargetKind::Python) {
        return None;
    }
    let why = |planned: &Planned| match &planned.plan.python {
        PythonPlan::Impossible(why) => Some(why.clone()),
        PythonPlan::NotAsked | PythonPlan::Source { .. } => None,
    };
    if !planned.iter().all(|planned| why(planned).is_some()) {
        return None;
    }
    let first = planned.first()?;
    let remarks = first.plan.remarks_on_process().take(REASONS).map(str::to_owned).collect();
    Some(PrepareError::NoPython { pid: first.process.pid(), why: why(first)?, remarks })
}

fn selects_nothing(
    index: TargetIndex,
    target: &Target,
    resolver: &Resolver,
    planned: &[Planned],
    explained: bool,
) -> SelectsNothing {
    let reasons = |of: &Planned| (of.process.pid(), reasons(index, target, resolver, of, explained));
    let processes = planned.iter().map(reasons).filter(|(_, reasons)| !reasons.is_empty()).collect();
    SelectsNothing { line: target.line, target: target.text.clone(), processes }
}

/// Why a target selects nothing in the files that a process maps.
pub(super) fn of_files(target: &Target, process: &Process) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if target.kind == TargetKind::Python {
        return reasons;
    }
    let Ok(mappings) = process.mappings() else { return reasons };
    let is_like = |mapped: &MappedFile| target.module.matches(&mapped.path_in_process.to_string_lossy());
    if !mappings.files.iter().chain(&mappings.moved).any(is_like) {
        reasons.push(Reason::NoFile { pattern: target.module.as_str().to_owned() });
    }
    if target.kind == TargetKind::Native && mappings.anonymous.iter().any(|code| !code.is_the_kernels()) {
        reasons.push(Reason::Jit);
    }
    reasons
}

/// All reasons. With `explained`, this includes the reasons that need a list of all names.
fn reasons(
    index: TargetIndex,
    target: &Target,
    resolver: &Resolver,
    planned: &Planned,
    explained: bool,
) -> Vec<Reason> {
    let Planned { process, plan, loaded, unlisted, .. } = planned;
    let of_target = plan.remarks.iter().filter(|remark| remark.target == Some(index));
    let mut reasons: Vec<_> = of_target.map(|remark| Reason::Found(remark.text.clone())).collect();
    if target.kind == TargetKind::Python {
        if let PythonPlan::Impossible(why) = &plan.python {
            reasons.push(Reason::Found(why.clone()));
        }
        reasons.extend(plan.remarks_on_process().map(|text| Reason::Found(text.to_owned())));
    }
    let first = plan.functions.iter().find(|function| function.shadowed.contains(&index));
    let first = first.and_then(|function| resolver.targets().get(function.selected.target));
    reasons.extend(first.map(|first| Reason::SelectedBy(first.line)));
    let callers_found = planned.callers_found(target.kind);
    let has_no_caller = |found: u64| resolver.targets().without_caller(target.kind, found).contains(&index);
    if let Some(caller) = target.caller.as_ref().filter(|_| callers_found.is_some_and(has_no_caller)) {
        let names = loaded.iter().map(|(file, name)| (file.as_str(), name.as_str()));
        let nearest = match target.kind {
            TargetKind::Native if explained => resolver.nearest_callers(process, target),
            TargetKind::Native => Vec::new(),
            TargetKind::Python | TargetKind::Usdt => target.nearest_callers(names, REASONS),
        };
        reasons.push(Reason::NoCaller { pattern: caller.pattern.clone(), nearest });
    }
    if reasons.is_empty() && explained {
        reasons = of_files(target, process);
        // Names of other functions would mislead here.
        if let Some(text) = compiled(process, target, resolver.explaining()) {
            reasons.push(Reason::Found(text));
            return reasons;
        }
        let nearest = resolver.nearest(process, index, loaded);
        reasons.extend((!nearest.is_empty()).then_some(Reason::Nearest(nearest)));
        if target.kind == TargetKind::Python {
            reasons.extend(unlisted.iter().map(|text| Reason::Found((*text).to_owned())));
        }
    }
    reasons.truncate(REASONS);
    reasons
}
