//! Follows processes: handles forks and execs of covered processes, and stops covering processes.

use super::{
    coverage::Coverage,
    phase::{Covered, HelperPhase},
};
use crate::{
    probe::attach::AttachError,
    process::{Memory, Process},
    session::{error::SessionError, events::Event},
    units::Pid,
};

/// How the session found out that a process runs a new program. We did not hold the program at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// The process executed the program.
    Exec,
    /// The process is a child of a covered process, and we found it in /proc.
    Look,
}

impl Coverage {
    /// Covers the child of a covered process that forked. The child has the parent's image, and so the
    /// parent's sites.
    ///
    /// A child that shares its parent's memory (vfork) executes the parent's code until it calls exec. Then
    /// we cover the child.
    pub(super) fn forked(&mut self, parent: Pid, child: Pid, shares_memory: bool) {
        if !self.context.settings.children {
            return self.engines.untrack(child);
        }
        if shares_memory || self.processes.has(child) {
            return;
        }
        let Some(parent) = self.processes.get(parent) else { return };
        let (groups, python, helper) = (parent.groups.clone(), parent.python.as_ref(), parent.helper.id());
        let callers = parent.callers.clone();
        let process = match Process::open(child) {
            Ok(process) => process,
            Err(error) => {
                tracing::debug!("child {child} is not covered: {error}");
                return;
            }
        };
        let python = python.and_then(|python| self.engines.follower_like(python, &process));
        let image = process.memory().ok();
        let covered = match self.cover_with(process, groups, callers, python, helper) {
            Err(SessionError::NotInPlace(_)) => self.cover_by_own_mappings(child),
            result => result,
        };
        self.settle(child, image.as_ref(), covered);
    }

    /// Covers a forked child with a plan from the child's own mappings. The parent's plan is of no use:
    /// overlayfs has since copied one of the files, and shows the copy.
    fn cover_by_own_mappings(&mut self, pid: Pid) -> Result<(), SessionError> {
        let Some(Covered { process, helper, attachments, .. }) = self.processes.remove(pid) else {
            return Ok(());
        };
        let helper = helper.id();
        // Detaches first, so that we attach to no site twice.
        drop(attachments);
        let mut plan = self.context.resolver.plan_at_start(&process, self.processes.entry_source())?;
        if helper.is_some() {
            plan.keep_symbols();
        }
        self.cover(process, &plan, helper)
    }

    /// Covers a process that replaced its image. Old probes have no effect, and the new image gets its own
    /// plan. If the process was named on the command line, the session no longer covers it.
    pub(super) fn cover_executed(&mut self, pid: Pid) {
        let was_covered = self.processes.remove(pid);
        if was_covered.is_some() {
            self.context.state.events.add(Event::Replaced { pid });
        }
        if self.context.is_root(pid) {
            if let Some(covered) = was_covered {
                tracing::info!("process {pid} replaced its image and is let go");
                self.processes.root_was_replaced = true;
                self.let_go(covered);
            }
            return;
        }
        if !self.context.settings.children {
            return self.engines.untrack(pid);
        }
        if let Some(covered) = was_covered {
            self.leave_image(pid, covered);
        }
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(error) => {
                tracing::debug!("process {pid} is not covered after its exec: {error}");
                return;
            }
        };
        self.cover_found(process, FoundBy::Exec);
        if self.processes.get(pid).is_some() {
            tracing::debug!("child {pid} is covered anew: it has replaced its image");
        }
    }

    /// Covers the current image of a process in place of the former one.
    pub(super) fn cover_anew(&mut self, pid: Pid) {
        self.let_go_of_image(pid);
        match Process::open(pid) {
            Ok(process) => self.cover_found(process, FoundBy::Exec),
            Err(error) => tracing::debug!("process {pid} is not covered after its exec: {error}"),
        }
    }

    /// Covers a child whose image is new.
    pub(super) fn cover_found(&mut self, process: Process, found: FoundBy) {
        let pid = process.pid();
        let image = process.memory().ok();
        match self.context.resolver.plan_at_start(&process, self.processes.entry_source()) {
            Ok(plan) => {
                let wants_helper = plan.wants_helper() || self.context.settings.policies.wants_helper();
                let covered = self.cover(process, &plan, None);
                self.settle(pid, image.as_ref(), covered);
                if wants_helper && self.processes.get(pid).is_some() {
                    if found == FoundBy::Exec && plan.wants_helper() {
                        self.tell_late_python(pid);
                    }
                    self.join_later(pid);
                }
            }
            Err(error) => tracing::debug!("child {pid} is not covered: {error}"),
        }
    }

    /// Records whether the session covers a child with this image. Warns of failures, unless the child has
    /// ended or replaced its image meanwhile.
    fn settle(&mut self, pid: Pid, image: Option<&Memory>, covered: Result<(), SessionError>) {
        match covered {
            Ok(()) => tracing::debug!("child {pid} is covered"),
            Err(SessionError::Attach(AttachError::ProcessGone { .. })) => {}
            // The plan was from mappings before the exec. The session will cover the process again.
            Err(SessionError::NotInPlace(error)) if image.is_some_and(Memory::is_gone) => {
                tracing::debug!("{error}");
            }
            Err(SessionError::NotInPlace(error)) => self.context.warn(error.to_string()),
            Err(error) => self.context.warn(format!("child process {pid} is not covered: {error}")),
        }
    }

    /// Stops covering a process that ended.
    pub(super) fn ended(&mut self, pid: Pid) {
        if let Some(covered) = self.processes.remove(pid) {
            self.context.state.events.add(Event::Gone { pid });
            if self.context.is_root(pid) {
                self.processes.root_was_replaced = false;
            }
            self.let_go(covered);
        }
    }

    /// Stops covering a process's image, because the process has executed another program.
    pub(super) fn let_go_of_image(&mut self, pid: Pid) {
        if let Some(covered) = self.processes.remove(pid) {
            self.context.state.events.add(Event::Replaced { pid });
            self.let_go(covered);
        }
    }

    /// Stops covering a process.
    fn let_go(&mut self, covered: Covered) {
        let pid = covered.process.pid();
        self.engines.untrack(pid);
        self.leave_image(pid, covered);
    }

    /// Removes the probes from a process, and releases its helper.
    fn leave_image(&mut self, pid: Pid, mut covered: Covered) {
        let helper = std::mem::take(&mut covered.helper);
        // Removes the links before another process may use the counters.
        drop(covered);
        match helper {
            HelperPhase::Absent => {}
            HelperPhase::Joining(late) => self.engines.helpers.given_up.add(pid, late),
            HelperPhase::In(id) => self.engines.helpers.release(id, &self.processes, &mut self.context),
        }
    }
}
