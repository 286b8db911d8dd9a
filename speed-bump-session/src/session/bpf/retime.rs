//! Switches the timing of calls on and off while the session runs. Helpers start or stop timing, and the
//! session adds or removes probes at the exits of native functions.

use std::sync::Arc;

use super::{coverage::Coverage, links::TargetSites, retarget::retarget_helpers};
use crate::{
    engine::bpf::UprobeProgram,
    prepare::times::{NO_NATIVE_TIMES, python_untimed},
    probe::attach::AttachError,
    session::{error::SessionError, told::ToldHelpers},
    targets::TargetKind,
    units::Pid,
};

/// Starts or stops timing calls. Past times stay in the counters.
///
/// # Errors
/// This session cannot time calls. Nothing has changed.
pub(super) fn time_calls(on: bool, coverage: &mut Coverage) -> Result<ToldHelpers, SessionError> {
    let settings = &coverage.context.settings;
    if on && !settings.may_time {
        return Err(SessionError::Retarget(
            "the session began without room for the times of calls".to_owned(),
        ));
    }
    if coverage.context.is_timing == on {
        return Ok(ToldHelpers::default());
    }
    if on {
        time_native(coverage)?;
        tell_untimed(coverage);
    } else {
        stop_timing_native(coverage)?;
    }
    coverage.context.is_timing = on;
    Ok(time_helpers(on, coverage))
}

/// Tells the helpers to start or stop timing. They apply the change together with their present targets.
fn time_helpers(on: bool, coverage: &mut Coverage) -> ToldHelpers {
    let Coverage { context, engines, processes } = coverage;
    let Some(setup) = engines.helpers.setup() else { return ToldHelpers::default() };
    let selector = Arc::clone(&setup.selector);
    engines.helpers.set_timing(on, context);
    retarget_helpers(&selector, &mut engines.helpers, processes, context)
}

/// Attaches probes at the exits of native functions, and then starts recording the beginnings of calls.
fn time_native(coverage: &mut Coverage) -> Result<(), SessionError> {
    let Coverage { context, processes, engines } = coverage;
    let Some(probes) = &mut engines.probes else { return Ok(()) };
    probes.begin_timing()?;
    for pid in processes.pids_from(Pid::FIRST) {
        let Some(covered) = processes.get(pid) else { continue };
        let is_exit = |of: &&TargetSites| of.group.program == UprobeProgram::SiteLeft;
        let groups: Vec<TargetSites> = covered.groups.iter().filter(is_exit).cloned().collect();
        if groups.is_empty() {
            continue;
        }
        match engines.attach(pid, covered.index, &groups) {
            Ok((attached, refused)) => {
                if let Some(covered) = processes.get_mut(pid) {
                    covered.attachments.extend(attached);
                }
                engines.take_refused(pid, refused, processes, context);
            }
            Err(AttachError::ProcessGone { .. }) => {}
            Err(error) => {
                stop_timing_native(coverage)?;
                return Err(error.into());
            }
        }
    }
    match engines.probes.as_mut().map(|probes| probes.remember_calls(true)) {
        Some(Err(error)) => {
            stop_timing_native(coverage)?;
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Stops recording the beginnings of calls, and then removes the probes at the exits.
fn stop_timing_native(Coverage { processes, engines, .. }: &mut Coverage) -> Result<(), SessionError> {
    let Some(probes) = &mut engines.probes else { return Ok(()) };
    probes.remember_calls(false)?;
    for (_, covered) in processes.iter_mut() {
        covered.attachments.retain(|attached| !attached.is_of_exits);
        engines.window.came_round();
    }
    Ok(())
}

/// Warns of calls that the session counts but does not time.
fn tell_untimed(Coverage { context, processes, .. }: &mut Coverage) {
    if context.resolver.targets().has_kind(TargetKind::Native) && !context.resolver.times_calls() {
        context.warn(NO_NATIVE_TIMES.to_owned());
    }
    let without_helper = processes.iter().filter(|(_, covered)| covered.python.is_some());
    for (pid, _) in without_helper {
        context.state.warn(python_untimed(pid));
    }
}
