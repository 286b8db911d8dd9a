//! How helpers come into processes that run: begun, waited for where a session begins, and done without where
//! they cannot come.

use std::{thread, time::Instant};

use speed_bump_abi::control_block::HelperCommand;

use super::{AtWork, LOOK_EVERY, NO_PYTHON};
use crate::{
    engine::EngineChoice,
    presence::{Joining, PresenceError},
    probe::{
        attach::AttachError,
        plan::{Plan, PythonPlan},
    },
    process::{Process, Program},
    python::helper::Room,
    session::{
        SessionError,
        bpf::{
            BpfSession,
            phase::{Covered, HelperId, HelperPhase},
        },
        functions::FunctionRange,
    },
    targets::TargetKind,
    units::Pid,
};

/// The helpers of the processes named on the command line, in their order.
#[derive(Debug, Default)]
pub(in crate::session::bpf) struct BroughtIn {
    pub(in crate::session::bpf) helpers: Vec<Option<HelperId>>,
    /// Of each whose Python functions are not covered: why not.
    pub(in crate::session::bpf) uncovered: Vec<(Pid, String)>,
}

impl BpfSession {
    /// Brings the helper into the processes named on the command line, as far as their plans say so, and
    /// waits until it is at work. A plan that has to do without is changed.
    pub(in crate::session::bpf) fn bring_helpers_in(
        &mut self,
        roots: &mut [(Process, Plan)],
    ) -> Result<BroughtIn, SessionError> {
        let mut ways = Vec::new();
        for (process, plan) in roots.iter() {
            let wanted = plan.wants_helper() || self.context.settings.policies.wants_helper();
            let begin = || {
                let program = plan.program.clone().map_or_else(|| process.program(), Ok)?;
                self.begin_join(process, program, self.named_rooms())
            };
            ways.push(wanted.then(begin).transpose()?);
        }
        let mut brought_in = BroughtIn::default();
        for ((process, plan), way) in roots.iter_mut().zip(ways) {
            let Some((joining, range)) = way else {
                brought_in.helpers.push(None);
                continue;
            };
            match self.wait_for_helper(process, joining, range) {
                Ok(id) => brought_in.helpers.push(Some(id)),
                Err(error) => {
                    self.context.give_back(range);
                    let why = self.do_without_helper(process, plan, error)?;
                    brought_in.uncovered.extend(why.map(|why| (process.pid(), why)));
                    brought_in.helpers.push(None);
                }
            }
        }
        Ok(brought_in)
    }

    /// Tells of processes without a helper whose Python functions cannot be covered in another way. Where
    /// those of no other process are covered, that ends the session.
    pub(in crate::session::bpf) fn tell_uncovered(
        &mut self,
        uncovered: Vec<(Pid, String)>,
    ) -> Result<(), SessionError> {
        let is_covered = |covered: &Covered| covered.helper.id().is_some() || covered.python.is_some();
        let is_any = self.has_other_targets_than_python()
            || self.processes.iter().any(|(_, covered)| is_covered(covered));
        if let (Some((pid, why)), true) = (uncovered.first(), self.context.settings.strict || !is_any) {
            return Err(SessionError::Python(format!("process {pid}: {why}")));
        }
        for (pid, why) in uncovered {
            self.context.warn(format!("process {pid}: its Python functions are not covered: {why}"));
        }
        Ok(())
    }

    fn wait_for_helper(
        &mut self,
        process: &Process,
        joining: Joining,
        range: FunctionRange,
    ) -> Result<HelperId, PresenceError> {
        let began = Instant::now();
        let stop = self.context.state.stop.clone();
        let stopped = || stop.times() > 0;
        while !joining.is_finished() && !stopped() {
            thread::sleep(LOOK_EVERY);
        }
        let presence = joining.finish()?;
        tracing::info!("the helper is in process {} after {:?}", process.pid(), began.elapsed());
        match presence.wait_active(process, stopped) {
            // It waits on, and the processes that are forked meanwhile need not wait for it.
            Err(PresenceError::Asleep { .. }) if !self.context.settings.strict => {}
            Err(error @ PresenceError::Overdue { .. }) if !self.context.settings.strict => {
                self.context.warn(format!("process {}: {error}; it is covered from then on", process.pid()));
            }
            waited => waited?,
        }
        let report = presence.block.report()?;
        tracing::info!(
            "the helper has looked at {} functions of process {} after {:?}",
            report.surveyed,
            process.pid(),
            began.elapsed()
        );
        let id = self.take_in(presence, range);
        self.listen_to(id);
        Ok(id)
    }

    /// Rooms for a process that was named.
    pub(in crate::session::bpf) fn named_rooms(&self) -> &'static [Room] {
        if self.context.settings.policies.choice().delays_in_helper() {
            &[Room::NAMED, Room::NAMED_OF_PROGRAMS]
        } else {
            &[Room::NAMED_OF_PROGRAMS]
        }
    }

    /// Starts to bring the helper into a process that runs this program, with the first of these rooms that
    /// there is place for.
    pub(super) fn begin_join(
        &mut self,
        process: &Process,
        program: Program,
        rooms: &[Room],
    ) -> Result<(Joining, FunctionRange), SessionError> {
        let setup = self.helpers.setup.clone();
        let setup = setup.ok_or_else(|| SessionError::Python("no helper was prepared".to_owned()))?;
        let interpreters = self.context.resolver.interpreter_files(process)?;
        let for_python = !interpreters.is_empty() && self.context.resolver.may_inject();
        if !for_python && !self.context.settings.policies.wants_helper() {
            process.check_program(&program)?;
            let text = format!("process {}: no interpreter is mapped any more", process.pid());
            return Err(SessionError::Python(text));
        }
        let first = if for_python { HelperCommand::Run } else { HelperCommand::HandleSignals };
        let (range, taken) = self.context.reserve(if for_python { rooms } else { &NO_PYTHON })?;
        match setup.begin(process, program, interpreters, taken, first, self.sources.waker()) {
            Ok(joining) => Ok((joining, range)),
            Err(error) => {
                self.context.give_back(range);
                Err(self.session_error(process, error))
            }
        }
    }

    /// Plans a process anew into which the helper could not be brought. Why its Python functions are not
    /// covered, if they are not.
    fn do_without_helper(
        &mut self,
        process: &Process,
        plan: &mut Plan,
        error: PresenceError,
    ) -> Result<Option<String>, SessionError> {
        let error = match error.into_other_program() {
            Ok(error) => return Err(error.into()),
            Err(error) => error,
        };
        if matches!(error, PresenceError::Stopped | PresenceError::Gone { .. }) || !process.is_alive() {
            return Err(self.session_error(process, error));
        }
        let pid = process.pid();
        if let EngineChoice::Only(engine) = self.context.settings.policies.choice()
            && self.context.settings.policies.insists_on_helper()
        {
            return Err(SessionError::Signal(format!(
                "process {pid}: {error}. The engine `{engine}` needs the helper in the process: use \
                 `--engine bpf`"
            )));
        }
        let other = self.context.resolver.plan_without_helper(process, &error.to_string())?;
        plan.python = PythonPlan::NotAsked;
        plan.add(other);
        match &plan.python {
            PythonPlan::Source { source, .. } => self.context.warn(format!(
                "process {pid}: {error}. Its Python calls are taken from {source}, where every call of any \
                 function traps"
            )),
            PythonPlan::Impossible(why) => return Ok(Some(why.clone())),
            PythonPlan::NotAsked => {}
        }
        Ok(None)
    }

    fn has_other_targets_than_python(&self) -> bool {
        self.context.resolver.targets().iter().any(|(_, target)| target.kind != TargetKind::Python)
    }

    fn session_error(&self, process: &Process, error: PresenceError) -> SessionError {
        match error {
            PresenceError::Stopped => SessionError::Stopped,
            _ if !process.is_alive() => AttachError::ProcessGone { pid: process.pid() }.into(),
            error => SessionError::Python(error.to_string()),
        }
    }

    /// Waits, for as long as one may take, until the helpers are at work that are on their way into children.
    pub(in crate::session::bpf) fn wait_for_joining(&mut self) {
        let deadline = Instant::now() + self.context.settings.inject_timeout;
        while self.context.state.stop.times() == 0 && Instant::now() < deadline {
            self.poll_helpers();
            let is_over = |at_work: &AtWork| at_work.is_active || at_work.is_over || at_work.is_asleep();
            let comes = |covered: &Covered| matches!(covered.helper, HelperPhase::Joining(_));
            let any_comes = self.processes.iter().any(|(_, covered)| comes(covered));
            if !any_comes && self.helpers.at_work.values().all(is_over) {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
