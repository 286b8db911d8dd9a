//! Targets that come and go while the session runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{BpfSession, phase::HelperPhase, python::PythonFollower};
use crate::{
    probe::attach::{self, AttachError, Attachment, RefusedSite, SiteGroup},
    python::entry_source::EntrySource,
    session::{SessionError, doses::Setting},
    targets::{Target, TargetChange, TargetIndex, TargetKind, Targets, selector},
    units::Pid,
};

/// So many targets have links of their own in a process, so that each can be detached alone. With more,
/// links would be as many as targets.
const APART: usize = 64;

/// The links of some sites.
#[derive(Debug)]
pub(super) struct Attached {
    /// The only target that they are for, if they are for one only.
    pub(super) target: Option<TargetIndex>,
    pub(super) links: Attachment,
}

/// Sites, and the only target that they are for.
#[derive(Clone, Debug)]
pub(super) struct TargetSites {
    pub(super) target: Option<TargetIndex>,
    pub(super) group: SiteGroup,
}

impl TargetSites {
    /// Sites that stand for any target.
    pub(super) fn of_all(group: SiteGroup) -> Self {
        Self { target: None, group }
    }
}

/// Whether targets are so few that each gets links of its own.
pub(super) fn are_apart(targets: impl Iterator<Item = TargetIndex>) -> bool {
    targets.collect::<BTreeSet<_>>().len() <= APART
}

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
        let targets = Arc::new(self.state.doses().targets.changed(change));
        let selector = self.check_change(change, &targets)?;
        let is_native = |target: &Target| target.kind == TargetKind::Native;
        if self.settings.times && !self.resolver.times_calls() && change.add.iter().any(is_native) {
            self.warn(
                "calls of native functions are counted and not timed: the session began without any"
                    .to_owned(),
            );
        }
        let setting = self.state.doses().change_targets(change)?;
        self.resolver.set_targets(targets);
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
        let had_python = self.resolver.targets().iter().any(|(_, target)| is_python(&target));
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
                self.warn(format!("process {owner}: its helper keeps the targets that it had: {error}"));
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

impl PythonFollower {
    fn reads_perf_map(&self) -> bool {
        self.source() == EntrySource::PerfMap
    }
}
