//! The engines that count and delay calls in a session, and the window that they share.

use std::collections::HashMap;

use super::{
    context::Context,
    follower::PythonFollower,
    helpers::Helpers,
    links::{Attached, TargetSites},
    phase::{HelperId, Processes},
    probes::Probes,
    shared_code::shared_code,
    window::Window,
};
use crate::{
    presence::Presence,
    probe::{
        attach::{self, AttachError, RefusedSite, SiteGroup},
        plan::{CallerCode, Plan},
    },
    process::Process,
    session::{error::SessionError, functions::FunctionRange},
    units::Pid,
};

/// The engines of a session.
pub(super) struct Engines {
    /// The engine `bpf`. The programs of this engine also announce forks and execs. `None` if nothing needs
    /// the engine.
    pub(super) probes: Option<Probes>,
    /// The engines `helper` and `signal`.
    pub(super) helpers: Helpers,
    /// The time in which the engines delay calls.
    pub(super) window: Window,
}

impl Engines {
    /// Makes the BPF programs announce forks and execs of a process. Does nothing without these programs.
    ///
    /// # Errors
    /// There is no room for the process.
    pub(super) fn track(&mut self, pid: Pid) -> Result<(), SessionError> {
        if let Some(probes) = &mut self.probes {
            probes.engine.track(pid)?;
        }
        Ok(())
    }

    /// Sets where the callers lie in the process with this PID and index that native targets name.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn set_callers(
        &mut self,
        process: (Pid, u32),
        callers: Option<&CallerCode>,
        context: &mut Context,
    ) -> Result<(), SessionError> {
        context.state.native_callers_found |= callers.map_or(0, |callers| callers.found);
        self.probes.as_mut().map_or(Ok(()), |probes| probes.set_callers(process, callers))
    }

    /// Undoes [`track`](Self::track).
    pub(super) fn untrack(&mut self, pid: Pid) {
        if let Some(probes) = &mut self.probes {
            probes.untrack(pid);
        }
    }

    /// Gives the functions and sites of a plan their indices. In a session that started its command, every
    /// process is new.
    ///
    /// # Errors
    /// There is no room for the functions or sites, or the session has no engine for probes.
    pub(super) fn enter_plan(
        &mut self,
        plan: &Plan,
        is_run: bool,
        context: &mut Context,
    ) -> Result<Vec<TargetSites>, SessionError> {
        for remark in &plan.out_of_reach {
            context.warn(remark.text.clone());
        }
        for doubt in &plan.kinds_in_doubt {
            if context.resolver.tells(doubt) {
                context.warn(doubt.remark.text.clone());
            }
        }
        let targets = context.resolver.shared_targets().clone();
        shared_code(plan, &targets).into_iter().for_each(|text| context.warn(text));
        let Some(probes) = &mut self.probes else {
            return if plan.sites.is_empty() { Ok(Vec::new()) } else { Err(SessionError::WithoutProbes) };
        };
        // The plan has taken time. If we must measure costs now, this takes as long again.
        self.window.came_round();
        let entered = probes.enter_plan(plan, is_run || self.window.was_opened(), context);
        self.window.came_round();
        entered
    }

    /// Attaches to sites of a process. `process` is the index of the process.
    ///
    /// # Errors
    /// None of the sites is attached.
    pub(super) fn attach(
        &self,
        pid: Pid,
        process: u32,
        sites: &[TargetSites],
    ) -> Result<(Vec<Attached>, Vec<RefusedSite>), AttachError> {
        // Without this engine, no plan has sites.
        let Some(probes) = &self.probes else { return Ok((Vec::new(), Vec::new())) };
        probes.attach(pid, process, sites, &self.window)
    }

    /// Reports the sites of a process that the kernel refused.
    pub(super) fn take_refused(
        &mut self,
        pid: Pid,
        refused: Vec<RefusedSite>,
        processes: &mut Processes,
        context: &mut Context,
    ) {
        if let Some(covered) = processes.get_mut(pid) {
            covered.refused.extend(refused.iter().map(|refused| refused.site.site));
        }
        if let Some(probes) = &mut self.probes {
            probes.take_refused(refused, context);
        }
    }

    /// How many calls each function had before we handled its announcement, by the function's index.
    pub(super) fn pending_calls(&self) -> HashMap<u32, u64> {
        self.probes.as_ref().map(Probes::pending_calls).unwrap_or_default()
    }

    /// Finds the Python functions of a process if no helper reports them. The plan gives the entry source.
    pub(super) fn follower(&self, process: &Process, plan: &Plan) -> Option<PythonFollower> {
        self.probes.as_ref()?.follower(process, plan)
    }

    /// A follower with the same entry source for another process. Reads everything from the start.
    pub(super) fn follower_like(&self, other: &PythonFollower, process: &Process) -> Option<PythonFollower> {
        self.probes.as_ref()?.follower_like(other, process)
    }

    /// Handles what a process's perf map contains now. This stops at a time limit, and then some entries
    /// remain for later.
    pub(super) fn read_perf_map(&mut self, pid: Pid, processes: &mut Processes, context: &mut Context) {
        if let Some(probes) = &mut self.probes {
            probes.read_perf_map(pid, processes, context);
        }
    }

    /// Takes over a helper that we have loaded into a process, with this range of functions.
    pub(super) fn take_in(
        &mut self,
        presence: Presence,
        range: FunctionRange,
        context: &mut Context,
    ) -> HelperId {
        let id = self.helpers.take_in(presence, range, self.window.switch());
        if let Some(probes) = &mut self.probes {
            self.helpers.allow_signals(id, &mut probes.engine, context);
        }
        id
    }

    /// The probe on a helper's stub, for a process that the session is about to cover. `None` if the process
    /// already has this probe.
    ///
    /// If the session covers children, the probe applies to all processes that map the helper: the process
    /// into which we loaded it, and all processes forked from there. So we miss no call of a forked process.
    ///
    /// # Errors
    /// We cannot attach the probe.
    pub(super) fn stub_of(
        &mut self,
        id: HelperId,
        context: &Context,
    ) -> Result<Option<SiteGroup>, SessionError> {
        if let Some(at_work) = self.helpers.get_mut(id) {
            at_work.is_covered = true;
        }
        let Some(group) = self.stub_group(id, context)? else { return Ok(None) };
        let (Some(at_work), Some(probes)) = (self.helpers.get_mut(id), &self.probes) else { return Ok(None) };
        if context.settings.children && at_work.of_family.is_none() {
            at_work.of_family = attach::attach_to_family(&probes.engine, at_work.owner, &group)?;
        }
        Ok(at_work.of_family.is_none().then_some(group))
    }

    /// The probe on a helper's stub; `None` if the helper delays by itself.
    ///
    /// # Errors
    /// There is no room for the probe.
    pub(super) fn stub_group(
        &mut self,
        id: HelperId,
        context: &Context,
    ) -> Result<Option<SiteGroup>, SessionError> {
        let Some(at_work) = self.helpers.get(id) else { return Ok(None) };
        if at_work.presence.block.delays_in_place() {
            return Ok(None);
        }
        let Some(probes) = &mut self.probes else { return Err(SessionError::WithoutProbes) };
        probes.enter_stub(&at_work.presence, at_work.range, context).map(Some)
    }
}
