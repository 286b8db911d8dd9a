//! Loads helpers into running processes: begins to load them, and waits for them when a session begins. Makes
//! other plans for processes into which it cannot load a helper.

use std::{thread, time::Instant};

use speed_bump_abi::control_block::HelperCommand;

use super::{
    context::Context,
    engines::Engines,
    helpers::{Helpers, LOOK_EVERY},
    phase::{Covered, HelperId, Processes},
    rooms,
};
use crate::{
    engine::EngineChoice,
    presence::{Joining, PresenceError},
    probe::{
        attach::AttachError,
        plan::{Plan, PythonPlan},
    },
    process::{Process, Program},
    python::helper::Room,
    session::{error::SessionError, functions::FunctionRange},
    targets::TargetKind,
    units::Pid,
};

/// The helpers of the processes named on the command line, in the same order.
#[derive(Debug, Default)]
pub(super) struct BroughtIn {
    pub(super) helpers: Vec<Option<HelperId>>,
    /// The processes whose Python functions the session does not cover, each with the reason.
    pub(super) uncovered: Vec<(Pid, String)>,
}

/// Loads the helper into the processes named on the command line if their plans need it, and waits until it
/// is active. Changes the plan of a process where this fails.
pub(super) fn bring_helpers_in(
    roots: &mut [(Process, Plan)],
    engines: &mut Engines,
    context: &mut Context,
) -> Result<BroughtIn, SessionError> {
    let mut ways = Vec::new();
    for (process, plan) in roots.iter() {
        let wanted = plan.wants_helper() || context.settings.policies.wants_helper();
        let begin = || {
            let program = plan.program.clone().map_or_else(|| process.program(), Ok)?;
            begin_join(process, program, rooms::named(&context.settings), &engines.helpers, context)
        };
        ways.push(wanted.then(begin).transpose()?);
    }
    let mut brought_in = BroughtIn::default();
    for ((process, plan), way) in roots.iter_mut().zip(ways) {
        let Some((joining, range)) = way else {
            brought_in.helpers.push(None);
            continue;
        };
        match wait_for_helper(process, joining, range, engines, context) {
            Ok(id) => brought_in.helpers.push(Some(id)),
            Err(error) => {
                context.give_back(range);
                let why = do_without_helper(process, plan, error, context)?;
                brought_in.uncovered.extend(why.map(|why| (process.pid(), why)));
                brought_in.helpers.push(None);
            }
        }
    }
    Ok(brought_in)
}

/// Warns of processes whose Python functions the session does not cover, because we could not load the helper
/// and there is no other way. Fails if no process is left whose functions the session covers.
pub(super) fn tell_uncovered(
    uncovered: Vec<(Pid, String)>,
    processes: &Processes,
    context: &mut Context,
) -> Result<(), SessionError> {
    let is_covered = |covered: &Covered| covered.helper.id().is_some() || covered.python.is_some();
    let is_any =
        has_other_targets_than_python(context) || processes.iter().any(|(_, covered)| is_covered(covered));
    if let (Some((pid, why)), true) = (uncovered.first(), context.settings.strict || !is_any) {
        return Err(SessionError::Python(format!("process {pid}: {why}")));
    }
    for (pid, why) in uncovered {
        context.warn(format!("process {pid}: its Python functions are not covered: {why}"));
    }
    Ok(())
}

fn wait_for_helper(
    process: &Process,
    joining: Joining,
    range: FunctionRange,
    engines: &mut Engines,
    context: &mut Context,
) -> Result<HelperId, PresenceError> {
    let began = Instant::now();
    let stop = context.state.stop.clone();
    let stopped = || stop.times() > 0;
    while !joining.is_finished() && !stopped() {
        thread::sleep(LOOK_EVERY);
    }
    let presence = joining.finish()?;
    tracing::info!("the helper is in process {} after {:?}", process.pid(), began.elapsed());
    match presence.wait_active(process, stopped) {
        // The helper goes on in the background. Processes forked in the meantime need not wait for it.
        Err(PresenceError::Asleep { .. }) if !context.settings.strict => {}
        Err(error @ PresenceError::Overdue { .. }) if !context.settings.strict => {
            context.warn(format!("process {}: {error}; it is covered from then on", process.pid()));
        }
        waited => waited?,
    }
    let report = presence.block.report()?;
    tracing::info!(
        "the helper has judged {} functions of process {} after {:?}",
        report.surveyed,
        process.pid(),
        began.elapsed()
    );
    let id = engines.take_in(presence, range, context);
    engines.helpers.listen_to(id, context);
    Ok(id)
}

/// Begins to load the helper into a process that runs this program. Reserves indices for the program's
/// functions: takes the first of `rooms` for which enough indices are left.
pub(super) fn begin_join(
    process: &Process,
    program: Program,
    rooms: &[Room],
    helpers: &Helpers,
    context: &Context,
) -> Result<(Joining, FunctionRange), SessionError> {
    let setup = helpers.setup().ok_or_else(|| SessionError::Python("no helper was prepared".to_owned()))?;
    let interpreters = context.resolver.interpreter_files(process)?;
    let for_python = !interpreters.is_empty() && context.resolver.may_inject();
    if !for_python && !context.settings.policies.wants_helper() {
        process.check_program(&program)?;
        let text = format!("process {}: no interpreter is mapped any more", process.pid());
        return Err(SessionError::Python(text));
    }
    let first = if for_python { HelperCommand::Run } else { HelperCommand::HandleSignals };
    let (range, taken) = context.reserve(if for_python { rooms } else { &rooms::NO_PYTHON })?;
    match setup.begin(process, program, interpreters, taken, first, helpers.wake()) {
        Ok(joining) => Ok((joining, range)),
        Err(error) => {
            context.give_back(range);
            Err(session_error(process, error))
        }
    }
}

/// Makes a new plan for a process into which we could not load the helper. Returns why the session does not
/// cover the process's Python functions; `None` if it does.
fn do_without_helper(
    process: &Process,
    plan: &mut Plan,
    error: PresenceError,
    context: &mut Context,
) -> Result<Option<String>, SessionError> {
    let error = match error.into_other_program() {
        Ok(error) => return Err(error.into()),
        Err(error) => error,
    };
    if matches!(error, PresenceError::Stopped | PresenceError::Gone { .. }) || !process.is_alive() {
        return Err(session_error(process, error));
    }
    let pid = process.pid();
    if let EngineChoice::Only(engine) = context.settings.policies.choice()
        && context.settings.policies.insists_on_helper()
    {
        return Err(SessionError::Signal(format!(
            "process {pid}: {error}. The engine `{engine}` needs the helper in the process: use \
             `--engine bpf`"
        )));
    }
    let other = context.resolver.plan_without_helper(process, &error.to_string())?;
    plan.python = PythonPlan::NotAsked;
    plan.add(other);
    match &plan.python {
        PythonPlan::Source { source, .. } => context.warn(format!(
            "process {pid}: {error}. Its Python calls are taken from {source}, where every call of any \
             function traps"
        )),
        PythonPlan::Impossible(why) => return Ok(Some(why.clone())),
        PythonPlan::NotAsked => {}
    }
    Ok(None)
}

fn has_other_targets_than_python(context: &Context) -> bool {
    context.resolver.targets().iter().any(|(_, target)| target.kind != TargetKind::Python)
}

fn session_error(process: &Process, error: PresenceError) -> SessionError {
    match error {
        PresenceError::Stopped => SessionError::Stopped,
        _ if !process.is_alive() => AttachError::ProcessGone { pid: process.pid() }.into(),
        error => SessionError::Python(error.to_string()),
    }
}
