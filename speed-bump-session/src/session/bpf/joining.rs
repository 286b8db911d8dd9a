//! Loads helpers into processes that the session already covers: children that execute an interpreter, and
//! programs that map an interpreter late.
//!
//! An interpreter that the process has just mapped may not be ready for the helper. So we try to load the
//! helper for a few seconds.

use std::time::{Duration, Instant};

use super::{
    begin::begin_join,
    coverage::Coverage,
    links::TargetSites,
    phase::{HelperId, HelperPhase, LateJoin},
    rooms,
};
use crate::{
    inject::InjectError, presence::PresenceError, probe::plan::PythonPlan, process::Process,
    session::error::SessionError, units::Pid,
};

/// How long we try to load the helper into a child that has just executed an interpreter.
const STARTING: Duration = Duration::from_secs(5);
/// How often we try to load.
const TRY_EVERY: Duration = Duration::from_millis(25);

/// Checks on the helper that we are loading into this process, if there is one.
///
/// # Errors
/// The session does not cover the process's Python functions.
pub(super) fn poll(pid: Pid, coverage: &mut Coverage) -> Result<(), SessionError> {
    let Some(covered) = coverage.processes.get_mut(pid) else { return Ok(()) };
    if !matches!(covered.helper, HelperPhase::Joining(_)) {
        return Ok(());
    }
    let is_alive = covered.process.is_alive();
    let HelperPhase::Joining(mut late) = std::mem::take(&mut covered.helper) else { return Ok(()) };
    if !is_alive {
        coverage.engines.helpers.given_up.add(pid, late);
        return Ok(());
    }
    match late.way.take() {
        None if Instant::now() >= late.next && !coverage.engines.helpers.given_up.has(pid) => {
            let Some(own) = Process::open(pid).ok() else { return Ok(()) };
            let program = own.program()?;
            let (helpers, context) = (&coverage.engines.helpers, &coverage.context);
            late.way = Some(begin_join(&own, program, &rooms::OF_CHILDREN, helpers, context)?);
        }
        Some((joining, range)) if joining.is_finished() => {
            return match joining.finish() {
                Ok(presence) => {
                    let id = coverage.engines.take_in(presence, range, &mut coverage.context);
                    attach_stub(pid, id, coverage)
                }
                Err(error) => {
                    coverage.context.give_back(range);
                    joined_not(pid, late, &error, coverage)
                }
            };
        }
        way => late.way = way,
    }
    set_joining(pid, late, coverage);
    Ok(())
}

fn set_joining(pid: Pid, late: LateJoin, coverage: &mut Coverage) {
    match coverage.processes.get_mut(pid) {
        Some(covered) => covered.helper = HelperPhase::Joining(late),
        None => coverage.engines.helpers.given_up.add(pid, late),
    }
}

/// Handles a failure to load a helper. If the interpreter is only starting, we try again later.
fn joined_not(
    pid: Pid,
    late: LateJoin,
    error: &PresenceError,
    coverage: &mut Coverage,
) -> Result<(), SessionError> {
    // The process's previous helper must leave first, which may take any time.
    let is_leaving = matches!(error, PresenceError::Inject(InjectError::Leaving { .. }));
    if is_leaving || late.since.elapsed() < STARTING {
        tracing::debug!("the helper is not in process {pid} yet: {error}");
        let next = Instant::now() + TRY_EVERY;
        set_joining(pid, LateJoin { next, ..late }, coverage);
        return Ok(());
    }
    let Some(covered) = coverage.processes.get(pid) else { return Ok(()) };
    let plan = coverage.context.resolver.plan_without_helper(&covered.process, &error.to_string())?;
    if let PythonPlan::Impossible(why) = &plan.python {
        return Err(SessionError::Python(why.clone()));
    }
    let groups = coverage.enter_plan(&plan)?;
    let Some(covered) = coverage.processes.get_mut(pid) else { return Ok(()) };
    covered.python = coverage.engines.follower(&covered.process, &plan);
    coverage.attach_more(pid, groups)
}

fn attach_stub(pid: Pid, id: HelperId, coverage: &mut Coverage) -> Result<(), SessionError> {
    let Some(covered) = coverage.processes.get_mut(pid) else { return Ok(()) };
    covered.helper = HelperPhase::In(id);
    let stub = coverage.engines.stub_of(id, &coverage.context)?;
    coverage.attach_more(pid, stub.map(TargetSites::of_all).into_iter().collect())?;
    tracing::debug!("the helper is in child {pid}");
    coverage.engines.helpers.listen_to(id, &mut coverage.context);
    Ok(())
}
