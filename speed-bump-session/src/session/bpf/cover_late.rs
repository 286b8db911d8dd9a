//! Covers files that a process maps after it was attached to: what its dynamic loader brings into an image that
//! has only just begun, and what it opens with dlopen later.

use std::collections::HashSet;

use super::{BpfSession, follower::PythonFollower, links::TargetSites};
use crate::{probe::attach::AttachError, session::SessionError, units::Pid};

impl BpfSession {
    /// Covers what processes have mapped since they were last looked at.
    pub(super) fn look_for_late_files(&mut self) {
        let due = |pid: &Pid| self.processes.get(*pid).is_some_and(|covered| covered.late_files.is_due());
        let due: Vec<Pid> = self.processes.pids_from(Pid::FIRST).into_iter().filter(due).collect();
        for pid in due {
            match self.cover_late_files(pid) {
                Ok(()) | Err(SessionError::Attach(AttachError::ProcessGone { .. })) => {}
                Err(SessionError::Process(error)) => {
                    tracing::debug!("what process {pid} maps now is not known: {error}");
                }
                Err(error) => self.context.warn(format!(
                    "process {pid}: functions in files that it mapped after the attach are not covered: \
                     {error}"
                )),
            }
        }
    }

    fn cover_late_files(&mut self, pid: Pid) -> Result<(), SessionError> {
        let Some(covered) = self.processes.get_mut(pid) else { return Ok(()) };
        covered.late_files.begin();
        let mappings = covered.process.mappings()?;
        let files: HashSet<_> = mappings.files.iter().map(|file| file.identity).collect();
        if !covered.late_files.take(files) {
            return Ok(());
        }

        let Some(covered) = self.processes.get(pid) else { return Ok(()) };
        let of_relatives = if self.context.is_root(pid) { None } else { self.entry_source() };
        let mut plan = self.context.resolver.plan_at_start(&covered.process, of_relatives)?;
        if covered.is_replaced() {
            // All this was of a program that it executes by now. Whoever tells of that covers it, and before
            // it begins.
            return Ok(());
        }
        if covered.python.is_some() || self.has_helper(pid) {
            // Another way to Python functions beside the one taken would count their calls twice.
            plan.keep_symbols();
        }
        let known: HashSet<u32> =
            covered.groups.iter().flat_map(|of| &of.group.sites).map(|site| site.site).collect();
        if plan.wants_helper() {
            self.tell_late_python(pid);
            self.join_later(pid);
        }
        let mut groups = self.enter_plan(&plan)?;
        groups.retain_mut(|TargetSites { group, .. }| {
            group.sites.retain(|site| !known.contains(&site.site));
            !group.sites.is_empty()
        });
        if groups.is_empty() {
            return Ok(());
        }

        let attached = match self.attach_more(pid, groups) {
            Err(error @ SessionError::NotInPlace(_)) => Err(error),
            attached => Ok(attached?),
        };
        let Some(covered) = self.processes.get_mut(pid) else { return Ok(()) };
        if covered.python.is_none() {
            covered.python = PythonFollower::new(&covered.process, &plan, &self.room);
        }
        self.read_python_of(pid);
        attached
    }

    /// Says under `run` that a process has called functions already that the session was to see.
    pub(super) fn tell_late_python(&mut self, pid: Pid) {
        if self.command.is_some() && !self.has_helper(pid) {
            self.context.warn(format!(
                "process {pid}: it loaded its Python when it had begun already, as programs with a Python of \
                 their own do; calls until the helper is in are not seen"
            ));
        }
    }
}
