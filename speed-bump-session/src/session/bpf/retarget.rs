//! Changes targets while the session runs.

use std::sync::Arc;

use super::{
    context::Context,
    cover_late::cover_due,
    coverage::Coverage,
    helpers::Helpers,
    phase::{HelperPhase, Processes},
};
use crate::{
    session::{doses::Setting, error::SessionError, told::ToldHelpers},
    targets::{Target, TargetChange, TargetIndex, TargetKind, Targets, selector},
    units::Pid,
};

/// Adds and removes targets: in the resolver, in the helpers, and in the covered processes.
pub(super) fn retarget(change: &TargetChange, coverage: &mut Coverage) -> Result<Setting, SessionError> {
    let targets = Arc::new(coverage.context.state.doses().targets.changed(change));
    let has_follower = coverage.processes.iter().any(|(_, covered)| covered.python.is_some());
    let selector = check_change(change, &targets, has_follower, coverage)?;
    let is_native = |target: &Target| target.kind == TargetKind::Native;
    if coverage.context.is_timing
        && !coverage.context.resolver.times_calls()
        && change.add.iter().any(is_native)
    {
        coverage.context.warn(
            "calls of native functions are counted and not timed: the session began without any".to_owned(),
        );
    }
    let mut setting = coverage.context.state.doses().change_targets(change)?;
    let before = targets.iter().count().saturating_sub(change.add.len());
    let new = targets.iter().skip(before).map(|(index, _)| index);
    coverage.context.new_targets = new.collect();
    coverage.context.resolver.set_targets(targets);
    for index in &change.drop {
        detach_target(*index, &mut coverage.processes);
        coverage.engines.window.came_round();
    }
    if let Some(selector) = selector {
        let helpers = &mut coverage.engines.helpers;
        setting.told = retarget_helpers(&selector, helpers, &coverage.processes, &mut coverage.context);
    }
    for pid in coverage.processes.pids_from(Pid::FIRST) {
        coverage.engines.window.came_round();
        follow_python_anew(pid, coverage);
        if let Some(covered) = coverage.processes.get_mut(pid) {
            covered.late_files.look_anew();
        }
    }
    if let Some(probes) = &mut coverage.engines.probes {
        probes.begin_change();
    }
    setting.uncovered = cover_anew(coverage);
    coverage.context.new_targets.clear();
    let Coverage { context, processes, engines } = coverage;
    if let Some(probes) = &mut engines.probes {
        probes.end_change(processes);
        probes.judge_anew(processes, context);
    }
    Ok(setting)
}

/// Covers what the targets select now. Returns the first failure in a process that was named on the command
/// line.
fn cover_anew(coverage: &mut Coverage) -> Option<SessionError> {
    let failed = cover_due(coverage).into_iter();
    let failed: Vec<_> =
        failed.map(|(pid, why)| (pid, SessionError::Uncovered { pid, why: Box::new(why) })).collect();
    failed.iter().for_each(|(_, error)| coverage.context.warn(error.to_string()));
    failed.into_iter().find(|(pid, _)| coverage.context.is_root(*pid)).map(|(_, error)| error)
}

/// Refuses a change that this session cannot make. `has_follower` says whether we see the Python functions of
/// some process without the helper. Returns the selector for the helpers, if the session can have any.
fn check_change(
    change: &TargetChange,
    targets: &Targets,
    has_follower: bool,
    coverage: &Coverage,
) -> Result<Option<Arc<[u8]>>, SessionError> {
    let Coverage { engines, context, .. } = coverage;
    let is_python = |target: &&Target| target.kind == TargetKind::Python;
    let had_python = context.resolver.targets().iter().any(|(_, target)| is_python(&target));
    if let Some(target) = change.add.iter().find(is_python).filter(|_| !had_python) {
        return Err(SessionError::Retarget(format!(
            "`{}` is a Python target, and the session began without any, so that no helper was prepared",
            target.pattern
        )));
    }
    if let Some(target) = change.add.iter().find(|target| !is_python(target))
        && engines.probes.is_none()
    {
        return Err(SessionError::Retarget(format!(
            "`{}` needs probes, and the session began without BPF, for Python functions alone",
            target.pattern
        )));
    }
    let is_unseen = |target: &&Target| match target.kind {
        TargetKind::Python => has_follower,
        TargetKind::Usdt => true,
        TargetKind::Native => false,
    };
    let mut with_caller = change.add.iter().filter(|target| target.caller.is_some());
    if let Some(target) = with_caller.find(is_unseen) {
        return Err(SessionError::Retarget(format!(
            "`{}` is for some callers alone (`caller=`): who calls is known of native functions, and of \
             Python functions that the helper sees",
            target.pattern_and_caller()
        )));
    }
    targets.check_native_callers().map_err(|error| SessionError::Retarget(error.to_string()))?;
    if engines.helpers.setup().is_none() {
        return Ok(None);
    }
    let selector = selector::compile(targets).map_err(|error| SessionError::Python(error.to_string()))?;
    for (_, block) in engines.helpers.blocks() {
        block.check_room(&selector).map_err(|error| SessionError::Retarget(error.to_string()))?;
    }
    Ok(Some(selector.into()))
}

/// Sends these targets to the helpers. Returns the helpers that have yet to apply them. Leaves out helpers
/// whose process has ended: processes forked from there apply the targets at their next calls, and nothing
/// shows when.
pub(super) fn retarget_helpers(
    selector: &Arc<[u8]>,
    helpers: &mut Helpers,
    processes: &Processes,
    context: &mut Context,
) -> ToldHelpers {
    helpers.set_selector(selector);
    let mut told = ToldHelpers::default();
    for (owner, block) in helpers.blocks() {
        match block.retarget(selector) {
            Ok(generation) if processes.get(owner).is_some_and(|owner| owner.process.is_alive()) => {
                told.add(Arc::downgrade(&block), generation);
            }
            Ok(_) => {}
            Err(error) => {
                context.warn(format!("process {owner}: its helper keeps the targets that it had: {error}"));
            }
        }
    }
    told
}

/// Removes the probes that serve this target alone.
fn detach_target(index: TargetIndex, processes: &mut Processes) {
    for (_, covered) in processes.iter_mut() {
        covered.attachments.retain(|attached| attached.target != Some(index));
        covered.groups.retain(|sites| sites.target != Some(index));
    }
}

/// Reads a process's perf map again from its start, because it has functions that no target selected before.
fn follow_python_anew(pid: Pid, coverage: &mut Coverage) {
    let Coverage { context, processes, engines } = coverage;
    let Some(covered) = processes.get_mut(pid) else { return };
    if matches!(covered.helper, HelperPhase::Absent)
        && let Some(python) = covered.python.as_ref().filter(|python| python.reads_perf_map())
    {
        covered.python = engines.follower_like(python, &covered.process);
        engines.read_perf_map(pid, processes, context);
    }
}
