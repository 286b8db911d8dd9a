//! What counts and delays calls in a session: each engine that it uses, and the window that they share.

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
    /// `bpf`, whose programs also announce forks and execs. `None` where nothing needs them.
    pub(super) probes: Option<Probes>,
    /// `helper` and `signal`.
    pub(super) helpers: Helpers,
    /// When any of them delays calls.
    pub(super) window: Window,
}

impl Engines {
    /// Makes the programs announce forks and execs of a process, if there are any.
    ///
    /// # Errors
    /// There is no room for it.
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

    /// Gives functions and sites of a plan their indices. In a session that started its command, every
    /// process is new.
    ///
    /// # Errors
    /// There is no room for them, or no engine for probes.
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
        // To plan has taken its time. What probes cost may be measured now, which takes as long.
        self.window.came_round();
        let entered = probes.enter_plan(plan, is_run || self.window.was_opened(), context);
        self.window.came_round();
        entered
    }

    /// Attaches to sites of a process; `process` is its index.
    ///
    /// # Errors
    /// Nothing of it is attached.
    pub(super) fn attach(
        &self,
        pid: Pid,
        process: u32,
        sites: &[TargetSites],
    ) -> Result<(Vec<Attached>, Vec<RefusedSite>), AttachError> {
        // Without that engine, no plan has sites.
        let Some(probes) = &self.probes else { return Ok((Vec::new(), Vec::new())) };
        probes.attach(pid, process, sites, &self.window)
    }

    /// Reports sites of a process that the kernel refused.
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

    /// Calls that came before their function was judged, by its index.
    pub(super) fn pending_calls(&self) -> HashMap<u32, u64> {
        self.probes.as_ref().map(Probes::pending_calls).unwrap_or_default()
    }

    /// How the Python functions of a process become known where no helper reports them, by its plan.
    pub(super) fn follower(&self, process: &Process, plan: &Plan) -> Option<PythonFollower> {
        self.probes.as_ref()?.follower(process, plan)
    }

    /// As for another process, read from the start.
    pub(super) fn follower_like(&self, other: &PythonFollower, process: &Process) -> Option<PythonFollower> {
        self.probes.as_ref()?.follower_like(other, process)
    }

    /// Handles what a process's perf map contains now, as much as can be read within a time limit.
    pub(super) fn read_perf_map(&mut self, pid: Pid, processes: &mut Processes, context: &mut Context) {
        if let Some(probes) = &mut self.probes {
            probes.read_perf_map(pid, processes, context);
        }
    }

    /// A helper is in a process, and has this range of functions.
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

    /// The probe on a helper's stub, where the process that is about to be covered still needs it.
    ///
    /// If children are covered, the probe is attached in all processes that map the helper: the one that it
    /// was loaded into, and those forked from it, which then miss no call.
    ///
    /// # Errors
    /// It cannot be attached.
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

    /// The probe on a helper's stub; `None` for a helper that delays by itself.
    ///
    /// # Errors
    /// There is no room for it.
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
