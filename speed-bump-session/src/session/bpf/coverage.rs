//! Covers a process: attaches what its plan contains, with all engines of the session.

use std::{collections::HashSet, time::Instant};

use super::{
    context::Context,
    engines::Engines,
    follower::PythonFollower,
    in_place::check_in_place,
    late_files::LateFiles,
    links::TargetSites,
    phase::{Covered, HelperId, HelperPhase, Processes},
};
use crate::{
    probe::plan::{CallerCode, Plan},
    process::Process,
    session::error::SessionError,
    units::{Nanos, Pid},
};

/// The processes of a session, and the engines that cover them.
pub(super) struct Coverage {
    pub(super) context: Context,
    pub(super) processes: Processes,
    pub(super) engines: Engines,
}

impl Coverage {
    /// Attaches the sites in the plan of a process. If `helper` is already in the process, also attaches to
    /// the helper's stub.
    ///
    /// # Errors
    /// The session does not cover the process. With [`SessionError::NotInPlace`], it covers a part of the
    /// process.
    pub(super) fn cover(
        &mut self,
        process: Process,
        plan: &Plan,
        helper: Option<HelperId>,
    ) -> Result<(), SessionError> {
        let mut groups = self.enter_plan(plan)?;
        if let Some(helper) = helper {
            groups.extend(self.engines.stub_of(helper, &self.context)?.map(TargetSites::of_all));
        }
        let python = self.engines.follower(&process, plan);
        self.cover_with(process, groups, plan.callers.clone(), python, helper)
    }

    /// Like [`cover`](Self::cover), for sites and helpers whose indices we know already.
    ///
    /// # Errors
    /// See [`cover`](Self::cover).
    pub(super) fn cover_with(
        &mut self,
        process: Process,
        groups: Vec<TargetSites>,
        callers: Option<CallerCode>,
        python: Option<PythonFollower>,
        helper: Option<HelperId>,
    ) -> Result<(), SessionError> {
        let Self { context, processes, engines } = self;
        let pid = process.pid();
        let index = processes.next_index();
        engines.track(pid)?;
        engines.set_callers((pid, index), callers.as_ref(), context)?;
        let began = Instant::now();
        let (attachments, refused) = engines.attach(pid, index, &groups)?;
        let sites: usize = attachments.iter().map(|attached| attached.links.sites()).sum();
        if sites > 0 {
            tracing::info!(
                "attached {sites} probe sites of process {pid} in {}",
                Nanos::from(began.elapsed())
            );
        }
        let covered = Covered {
            image: process.memory().ok(),
            process,
            index,
            groups,
            callers,
            attachments,
            refused: HashSet::new(),
            late_files: LateFiles::new(),
            python,
            helper: helper.map_or(HelperPhase::Absent, HelperPhase::In),
        };
        processes.insert(pid, covered);
        context.state.covers(pid);
        engines.take_refused(pid, refused, processes, context);
        engines.read_perf_map(pid, processes, context);
        check_in_place(pid, processes, engines, context)
    }

    /// Covers a process. If this can cover only a part of it, warns and goes on.
    ///
    /// # Errors
    /// The session covers nothing of the process.
    pub(super) fn cover_or_warn(
        &mut self,
        process: Process,
        plan: &Plan,
        helper: Option<HelperId>,
    ) -> Result<(), SessionError> {
        match self.cover(process, plan, helper) {
            Err(SessionError::NotInPlace(error)) => {
                self.context.warn(error.to_string());
                Ok(())
            }
            result => result,
        }
    }

    /// Gives the functions and sites of a plan their indices.
    ///
    /// # Errors
    /// There is no room for the functions or sites, or the session has no engine for probes.
    pub(super) fn enter_plan(&mut self, plan: &Plan) -> Result<Vec<TargetSites>, SessionError> {
        let is_run = self.processes.command.is_some();
        self.engines.enter_plan(plan, is_run, &mut self.context)
    }

    /// Takes the code of the callers in a covered process from a new plan.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn set_callers(&mut self, pid: Pid, plan: &Plan) -> Result<(), SessionError> {
        let Self { context, processes, engines } = self;
        let Some(covered) = processes.get_mut(pid) else { return Ok(()) };
        if covered.callers != plan.callers {
            engines.set_callers((pid, covered.index), plan.callers.as_ref(), context)?;
            covered.callers.clone_from(&plan.callers);
        }
        Ok(())
    }

    /// Attaches more sites in a covered process.
    ///
    /// # Errors
    /// No further site is attached. With [`SessionError::NotInPlace`], some are.
    pub(super) fn attach_more(&mut self, pid: Pid, groups: Vec<TargetSites>) -> Result<(), SessionError> {
        let Self { context, processes, engines } = self;
        let Some(index) = processes.get(pid).map(|covered| covered.index) else { return Ok(()) };
        let (attachments, refused) = engines.attach(pid, index, &groups)?;
        let sites: usize = attachments.iter().map(|attached| attached.links.sites()).sum();
        tracing::info!("attached {sites} more probe sites of process {pid}");
        let Some(covered) = processes.get_mut(pid) else { return Ok(()) };
        covered.attachments.extend(attachments);
        covered.groups.extend(groups);
        engines.take_refused(pid, refused, processes, context);
        check_in_place(pid, processes, engines, context)
    }

    /// Loads the helper into a covered process as soon as its interpreter allows it.
    pub(super) fn join_later(&mut self, pid: Pid) {
        if self.engines.helpers.setup().is_some() {
            self.processes.join_later(pid);
        }
    }

    /// For a session that started its command: warns that a process may already have called functions before
    /// the session covered them.
    pub(super) fn tell_late_python(&mut self, pid: Pid) {
        if self.processes.command.is_some() && !self.processes.has_helper(pid) {
            self.context.warn(format!(
                "process {pid}: it loaded its Python when it had begun already, as programs with a Python of \
                 their own do; calls until the helper is in are not seen"
            ));
        }
    }

    /// The caller has just covered a process. If the process is the command, and runs the command's first
    /// program, this opens the window.
    pub(super) fn open_window_of(&mut self, pid: Pid) {
        let command = self.processes.command.as_mut();
        if command.is_some_and(|command| command.pid() == pid && command.begins()) {
            self.open_window();
        }
    }

    /// Opens the window, in which calls are delayed. `start_after` counts from now on.
    pub(super) fn open_window(&mut self) {
        let processes = self.processes.iter().map(|(_, covered)| &covered.process);
        self.engines.window.open(processes, &mut self.context.state);
    }
}
