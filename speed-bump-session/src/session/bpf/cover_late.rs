//! Covers files that a process maps after the attach. The dynamic loader maps some of these into a new image,
//! and the process opens others later with dlopen.

use std::collections::HashSet;

use super::{context::Context, coverage::Coverage, links::TargetSites};
use crate::{
    failure::FailureKind,
    probe::plan::{Plan, Remark},
    process::MappedFile,
    session::error::SessionError,
    units::Pid,
};

/// Covers what processes have mapped since the last check.
pub(super) fn look_for_late_files(coverage: &mut Coverage) {
    for (pid, error) in cover_due(coverage) {
        match error {
            SessionError::Process(error) => {
                tracing::debug!("what process {pid} maps now is not known: {error}");
            }
            error => coverage.context.warn(format!(
                "process {pid}: functions in files that it mapped after the attach are not covered: \
                 {error}"
            )),
        }
    }
}

/// Covers the new files of processes that are due. Returns the processes where this failed, except those that
/// have ended.
pub(super) fn cover_due(coverage: &mut Coverage) -> Vec<(Pid, SessionError)> {
    let due = |pid: &Pid| coverage.processes.get(*pid).is_some_and(|covered| covered.late_files.is_due());
    let due: Vec<Pid> = coverage.processes.pids_from(Pid::FIRST).into_iter().filter(due).collect();
    let mut failed = Vec::new();
    for pid in due {
        // Making plans for many processes takes long. Meanwhile the event loop does not come round.
        coverage.engines.window.came_round();
        if let Err(error) = cover_late_files(pid, coverage)
            && error.kind() != FailureKind::Gone
        {
            failed.push((pid, error));
        }
    }
    failed
}

/// Reports why targets that were just added select nothing in a process.
fn tell_unselected(pid: Pid, plan: &Plan, context: &mut Context) {
    if context.new_targets.is_empty() {
        return;
    }
    let selecting = plan.selecting();
    let is_told = |remark: &&Remark| {
        remark.target.is_some_and(|of| context.new_targets.contains(&of) && !selecting.contains(&of))
    };
    let told = plan.remarks.iter().filter(is_told).filter_map(|remark| {
        let target = context.resolver.targets().get(remark.target?)?;
        Some(format!("process {pid}: `{}` selects nothing: {}", target.text, remark.text))
    });
    told.collect::<Vec<_>>().into_iter().for_each(|text| context.warn(text));
}

fn cover_late_files(pid: Pid, coverage: &mut Coverage) -> Result<(), SessionError> {
    let Some(covered) = coverage.processes.get_mut(pid) else { return Ok(()) };
    covered.late_files.begin();
    let mappings = covered.process.mappings()?;
    // Where callers lie is known by their addresses.
    let has_callers = covered.callers.is_some();
    let start = |file: &MappedFile| file.ranges.first().filter(|_| has_callers).map(|range| range.start);
    let files: HashSet<_> = mappings.files.iter().map(|file| (file.identity, start(file))).collect();
    if !covered.late_files.take(files) {
        return Ok(());
    }

    let Some(covered) = coverage.processes.get(pid) else { return Ok(()) };
    let of_relatives = if coverage.context.is_root(pid) { None } else { coverage.processes.entry_source() };
    let mut plan = coverage.context.resolver.plan_at_start(&covered.process, of_relatives)?;
    if covered.is_replaced() {
        // The process has executed another program meanwhile. The handler of that event covers the new
        // program.
        return Ok(());
    }
    if covered.python.is_some() || coverage.processes.has_helper(pid) {
        // A second probe on Python functions would count their calls twice.
        plan.keep_symbols();
    }
    tell_unselected(pid, &plan, &mut coverage.context);
    let known: HashSet<u32> =
        covered.groups.iter().flat_map(|of| &of.group.sites).map(|site| site.site).collect();
    if plan.wants_helper() {
        coverage.tell_late_python(pid);
        coverage.join_later(pid);
    }
    coverage.set_callers(pid, &plan)?;
    let mut groups = coverage.enter_plan(&plan)?;
    groups.retain_mut(|TargetSites { group, .. }| {
        group.sites.retain(|site| !known.contains(&site.site));
        !group.sites.is_empty()
    });
    if groups.is_empty() {
        return Ok(());
    }

    let attached = match coverage.attach_more(pid, groups) {
        Err(error @ SessionError::NotInPlace(_)) => Err(error),
        attached => Ok(attached?),
    };
    let Some(covered) = coverage.processes.get_mut(pid) else { return Ok(()) };
    if covered.python.is_none() {
        covered.python = coverage.engines.follower(&covered.process, &plan);
    }
    let Coverage { context, processes, engines } = coverage;
    engines.read_perf_map(pid, processes, context);
    attached
}
