//! Which processes are covered: attaching to them, following their forks and execs, letting go of them.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Instant,
};

use speed_bump_abi::{NO_FUNCTION, SiteArguments};

use super::{
    BpfSession,
    follower::PythonFollower,
    late_files::LateFiles,
    links::{TargetSites, are_apart},
    phase::{Covered, HelperId, HelperPhase},
    sites::costs,
    timing::{overhead_ns, way_ns},
};
use crate::{
    engine::bpf::UprobeProgram,
    probe::{
        attach::{AttachError, AttachSite, RefusedSite, SiteGroup},
        file::FileId,
        plan::{Plan, Timing},
    },
    process::{Memory, Process},
    python::entry_source::EntrySource,
    session::{SessionError, events::Event},
    targets::TargetIndex,
    units::{Nanos, Pid},
};

/// How it came out that a process runs a program that nobody held before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// It executed the program.
    Exec,
    /// A look at the children of what is covered.
    Look,
}

impl BpfSession {
    /// Attaches to a process what the plan for it says, and to the stub of the helper that is in it already.
    ///
    /// # Errors
    /// The process is not covered; or, with [`SessionError::NotInPlace`], not all of it.
    pub(super) fn cover(
        &mut self,
        process: Process,
        plan: &Plan,
        helper: Option<HelperId>,
    ) -> Result<(), SessionError> {
        let mut groups = self.enter_plan(plan)?;
        if let Some(helper) = helper {
            groups.extend(self.stub_of(helper)?.map(TargetSites::of_all));
        }
        let python = PythonFollower::new(&process, plan, &self.room);
        self.cover_with(process, groups, python, helper)
    }

    fn cover_with(
        &mut self,
        process: Process,
        groups: Vec<TargetSites>,
        python: Option<PythonFollower>,
        helper: Option<HelperId>,
    ) -> Result<(), SessionError> {
        let pid = process.pid();
        let index = self.coverings;
        self.engine.track(pid)?;
        let began = Instant::now();
        let (attachments, refused) = self.attach_sites(pid, index, &groups)?;
        let sites: usize = attachments.iter().map(|attached| attached.links.sites()).sum();
        if sites > 0 {
            tracing::info!(
                "attached {sites} probe sites of process {pid} in {}",
                Nanos::from(began.elapsed())
            );
        }
        self.coverings += 1;
        let covered = Covered {
            image: process.memory().ok(),
            process,
            index,
            groups,
            attachments,
            refused: HashSet::new(),
            late_files: LateFiles::new(),
            python,
            helper: helper.map_or(HelperPhase::Absent, HelperPhase::In),
        };
        self.processes.insert(pid, covered);
        self.context.state.covers(pid);
        self.take_refused(pid, refused);
        self.read_python_of(pid);
        self.check_in_place(pid)
    }

    pub(super) fn take_refused(&mut self, pid: Pid, refused: Vec<RefusedSite>) {
        if let Some(covered) = self.processes.get_mut(pid) {
            covered.refused.extend(refused.iter().map(|refused| refused.site.site));
        }
        for refused in refused {
            if self.take_refused_exit(&refused) {
                continue;
            }
            let path = refused.file.path().display();
            self.context.warn(format!(
                "the kernel refuses a probe at {path}+{}: {}",
                refused.site.offset, refused.error
            ));
        }
    }

    /// Gives functions and sites of a plan their indices, and tells the engine of the new ones.
    pub(super) fn enter_plan(&mut self, plan: &Plan) -> Result<Vec<TargetSites>, SessionError> {
        for remark in &plan.out_of_reach {
            self.context.warn(remark.text.clone());
        }
        self.tell_shared_code(plan);
        let mut indices = Vec::with_capacity(plan.functions.len());
        for function in &plan.functions {
            indices.push(self.context.state.doses().enter(&function.selected)?);
        }
        let apart = are_apart(plan.functions.iter().map(|function| function.selected.target));
        let mut groups: BTreeMap<(FileId, UprobeProgram, Option<TargetIndex>), SiteGroup> = BTreeMap::new();
        let mut untimed = Vec::new();
        for site in &plan.sites {
            let function =
                site.function.and_then(|position| indices.get(position).copied()).unwrap_or(NO_FUNCTION);
            let (index, new) = self.sites.enter(site, function)?;
            if new {
                let costs = costs(&self.context.resolver, &mut self.engine)?;
                self.engine.set_site(
                    index,
                    SiteArguments {
                        function,
                        overhead_ns: overhead_ns(costs, site.kind),
                        way_ns: way_ns(costs, site),
                        stack_delta: site.stack_delta,
                        arguments: site.arguments,
                        ..SiteArguments::default()
                    },
                )?;
            }
            let of = site.function.and_then(|position| plan.functions.get(position));
            if let Some(function) = of {
                self.context.note_way(function.selected.target, function.entry, site.kind);
            }
            let target = of.map(|function| function.selected.target).filter(|_| apart);
            let mut add =
                |program, sites: Vec<AttachSite>| {
                    let group = groups.entry((site.file.id(), program, target)).or_insert_with(|| {
                        SiteGroup { file: Arc::clone(&site.file), program, sites: Vec::new() }
                    });
                    group.sites.extend(sites);
                };
            if let (true, Some(planned), Timing::Impossible(why)) = (new, of, &site.timing) {
                untimed.push((&planned.selected, why.as_str()));
            }
            let at = AttachSite { offset: site.offset, semaphore: site.semaphore, site: index };
            add(site.program, vec![at]);
            if let Some(planned) = of {
                let exits = self.enter_exits(site, index, function, &planned.selected)?;
                if !exits.is_empty() {
                    add(UprobeProgram::SiteLeft, exits);
                }
            }
        }
        self.tell_untimed(&untimed);
        let sites = groups.into_iter().map(|((.., target), group)| TargetSites { target, group });
        Ok(sites.collect())
    }

    /// A covered process forked. The child has the parent's image, and so the parent's sites.
    ///
    /// A child that shares its parent's memory runs the parent's code in the parent's place until it execs:
    /// it is covered then.
    pub(super) fn forked(&mut self, parent: Pid, child: Pid, shares_memory: bool) {
        if !self.context.settings.children {
            return self.untrack(child);
        }
        if shares_memory || self.processes.has(child) {
            return;
        }
        let Some(parent) = self.processes.get(parent) else { return };
        let (groups, python, helper) = (parent.groups.clone(), parent.python.as_ref(), parent.helper.id());
        let process = match Process::open(child) {
            Ok(process) => process,
            Err(error) => {
                tracing::debug!("child {child} is not covered: {error}");
                return;
            }
        };
        let python = python.and_then(|python| python.in_child(&process, &self.room));
        let image = process.memory().ok();
        self.settle(child, image, |session| match session.cover_with(process, groups, python, helper) {
            Err(SessionError::NotInPlace(_)) => session.cover_by_own_mappings(child),
            result => result,
        });
    }

    /// Covers a forked child by what it maps itself: by its parent's files it cannot be, as overlayfs has
    /// copied one of them since, and shows the copy.
    fn cover_by_own_mappings(&mut self, pid: Pid) -> Result<(), SessionError> {
        let Some(Covered { process, helper, attachments, .. }) = self.processes.remove(pid) else {
            return Ok(());
        };
        let helper = helper.id();
        // The same sites must not be attached twice.
        drop(attachments);
        let mut plan = self.context.resolver.plan_at_start(&process, self.entry_source())?;
        if helper.is_some() {
            plan.keep_symbols();
        }
        self.cover(process, &plan, helper)
    }

    /// A process that is followed replaced its image: what was attached is void, and the new image is
    /// planned from scratch. A process named on the command line is let go instead.
    pub(super) fn executed(&mut self, pid: Pid) {
        if self.is_followed(pid) || self.catching.is_some() {
            if !self.has_current_image(pid) {
                self.processes.announce_exec(pid);
            }
        } else if self.is_command(pid) {
            if !self.has_current_image(pid) {
                self.cover_anew(pid);
            }
        } else {
            self.cover_executed(pid);
        }
    }

    /// As [`executed`](Self::executed), whoever told of it.
    pub(super) fn cover_executed(&mut self, pid: Pid) {
        let was_covered = self.processes.remove(pid);
        if was_covered.is_some() {
            self.context.state.events.add(Event::Replaced { pid });
        }
        if self.context.is_root(pid) {
            if let Some(covered) = was_covered {
                tracing::info!("process {pid} replaced its image and is let go");
                self.root_was_replaced = true;
                self.let_go(covered);
            }
            return;
        }
        if !self.context.settings.children {
            return self.untrack(pid);
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

    /// Covers a child whose image is not known yet.
    pub(super) fn cover_found(&mut self, process: Process, found: FoundBy) {
        let pid = process.pid();
        let image = process.memory().ok();
        match self.context.resolver.plan_at_start(&process, self.entry_source()) {
            Ok(plan) => {
                let wants_helper = plan.wants_helper() || self.context.settings.policies.wants_helper();
                self.settle(pid, image, |session| session.cover(process, &plan, None));
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

    /// How the Python calls of the covered processes become visible, as far as there are any.
    pub(super) fn entry_source(&self) -> Option<EntrySource> {
        self.processes.iter().find_map(|(_, covered)| covered.python.as_ref()).map(PythonFollower::source)
    }

    /// The covered processes whose image is another one than that which was planned for.
    pub(super) fn replaced(&self) -> Vec<Pid> {
        let is_replaced = |covered: &Covered| {
            covered.image.as_ref().is_some_and(|image| covered.process.has_replaced(image))
        };
        let replaced = self.processes.iter().filter(|(_, covered)| is_replaced(covered));
        replaced.map(|(pid, _)| pid).collect()
    }

    /// A process ended.
    pub(super) fn ended(&mut self, pid: Pid) {
        if let Some(covered) = self.processes.remove(pid) {
            self.context.state.events.add(Event::Gone { pid });
            if self.context.is_root(pid) {
                self.root_was_replaced = false;
            }
            self.let_go(covered);
        }
    }

    /// Whether any process named on the command line is still covered.
    pub(super) fn any_root_left(&self) -> bool {
        self.context.state.roots.iter().any(|pid| self.processes.has(*pid))
    }

    /// Lets go of a process.
    pub(super) fn let_go(&mut self, covered: Covered) {
        let pid = covered.process.pid();
        self.untrack(pid);
        self.leave_image(pid, covered);
    }

    /// Takes the probes from a process, and lets its helper go.
    fn leave_image(&mut self, pid: Pid, mut covered: Covered) {
        let helper = std::mem::take(&mut covered.helper);
        // The links go before the counters are given to others.
        drop(covered);
        match helper {
            HelperPhase::Absent => {}
            HelperPhase::Joining(late) => self.give_up(pid, late),
            HelperPhase::In(id) => self.release_helper(id),
        }
    }

    pub(super) fn untrack(&mut self, pid: Pid) {
        if let Err(error) = self.engine.untrack(pid) {
            tracing::debug!("cannot untrack process {pid}: {error}");
        }
    }

    /// Covers a child whose image is this; that it ended meanwhile is nothing to speak of, anything else is.
    fn settle(
        &mut self,
        pid: Pid,
        image: Option<Memory>,
        cover: impl FnOnce(&mut Self) -> Result<(), SessionError>,
    ) {
        match cover(self) {
            Ok(()) => tracing::debug!("child {pid} is covered"),
            Err(SessionError::Attach(AttachError::ProcessGone { .. })) => {}
            // It was covered by what it mapped before it replaced its image, and will be covered anew.
            Err(SessionError::NotInPlace(error)) if image.as_ref().is_some_and(Memory::is_gone) => {
                tracing::debug!("{error}");
            }
            Err(SessionError::NotInPlace(error)) => self.context.warn(error.to_string()),
            Err(error) => self.context.warn(format!("child process {pid} is not covered: {error}")),
        }
    }
}
