//! Targets that come and go while the session runs.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    BpfSession,
    links::{Attached, TargetSites},
    phase::HelperPhase,
};
use crate::{
    probe::attach::{self, AttachError, RefusedSite, SiteGroup},
    session::{SessionError, doses::Setting},
    targets::{Target, TargetChange, TargetIndex, TargetKind, Targets, selector},
    units::Pid,
};

impl BpfSession {
    /// Attaches to sites of a process; `process` is its index.
    pub(super) fn attach_sites(
        &self,
        pid: Pid,
        process: u32,
        sites: &[TargetSites],
    ) -> Result<(Vec<Attached>, Vec<RefusedSite>), AttachError> {
        let mut by_target: BTreeMap<Option<TargetIndex>, Vec<SiteGroup>> = BTreeMap::new();
        for TargetSites { target, group } in sites {
            by_target.entry(*target).or_default().push(group.clone());
        }
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        for (target, groups) in by_target {
            let (links, of_these) =
                attach::attach(&self.engine, pid, process, &groups, &|| self.window.came_round())?;
            all.push(Attached { target, links });
            refused.extend(of_these);
        }
        Ok((all, refused))
    }

    /// Has targets come and go: in what is resolved from here on, in the helpers, and in the processes that
    /// are covered.
    pub(super) fn retarget(&mut self, change: &TargetChange) -> Result<Setting, SessionError> {
        let targets = Arc::new(self.context.state.doses().targets.changed(change));
        let selector = self.check_change(change, &targets)?;
        let is_native = |target: &Target| target.kind == TargetKind::Native;
        if self.context.settings.times
            && !self.context.resolver.times_calls()
            && change.add.iter().any(is_native)
        {
            self.context.warn(
                "calls of native functions are counted and not timed: the session began without any"
                    .to_owned(),
            );
        }
        let setting = self.context.state.doses().change_targets(change)?;
        self.context.resolver.set_targets(targets);
        for index in &change.drop {
            self.detach_target(*index);
            self.window.came_round();
        }
        if let Some(selector) = selector {
            self.retarget_helpers(&selector);
        }
        for pid in self.processes.pids_from(Pid::FIRST) {
            self.follow_python_anew(pid);
            if let Some(covered) = self.processes.get_mut(pid) {
                covered.late_files.look_anew();
            }
        }
        self.look_for_late_files();
        self.judge_anew();
        Ok(setting)
    }

    /// Refuses what this session cannot take up. Returns what the helpers are to be told, if there may be
    /// any.
    fn check_change(
        &self,
        change: &TargetChange,
        targets: &Targets,
    ) -> Result<Option<Arc<[u8]>>, SessionError> {
        let is_python = |target: &&Target| target.kind == TargetKind::Python;
        let had_python = self.context.resolver.targets().iter().any(|(_, target)| is_python(&target));
        if let Some(target) = change.add.iter().find(is_python).filter(|_| !had_python) {
            return Err(SessionError::Retarget(format!(
                "`{}` is a Python target, and the session began without any, so that no helper was prepared",
                target.pattern
            )));
        }
        if self.helpers.setup().is_none() {
            return Ok(None);
        }
        let selector = selector::compile(targets).map_err(|error| SessionError::Python(error.to_string()))?;
        for (_, block) in self.helpers.blocks() {
            block.check_room(&selector).map_err(|error| SessionError::Retarget(error.to_string()))?;
        }
        Ok(Some(selector.into()))
    }

    fn retarget_helpers(&mut self, selector: &Arc<[u8]>) {
        self.helpers.set_selector(selector);
        for (owner, block) in self.helpers.blocks() {
            if let Err(error) = block.retarget(selector) {
                self.context
                    .warn(format!("process {owner}: its helper keeps the targets that it had: {error}"));
            }
        }
    }

    /// Takes the probes away that are for this target alone.
    fn detach_target(&mut self, index: TargetIndex) {
        for (_, covered) in self.processes.iter_mut() {
            covered.attachments.retain(|attached| attached.target != Some(index));
            covered.groups.retain(|sites| sites.target != Some(index));
        }
    }

    /// Has a perf map be read from its start: it names functions that were of no interest before.
    fn follow_python_anew(&mut self, pid: Pid) {
        let Some(covered) = self.processes.get_mut(pid) else { return };
        if matches!(covered.helper, HelperPhase::Absent)
            && let Some(python) = covered.python.as_ref().filter(|python| python.reads_perf_map())
        {
            covered.python = python.anew(&covered.process, &self.room);
            self.read_python_of(pid);
        }
    }
}
