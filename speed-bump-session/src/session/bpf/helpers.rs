//! Helpers in covered processes: brought in, and listened to.
//!
//! A helper serves the process that it was brought into and those forked from it, which share its block and
//! its numbers: each helper has a range of the session's function indices.

pub(super) mod begin;
pub(super) mod entering;
pub(super) mod late;
mod leaving;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use speed_bump_abi::{
    SiteArguments,
    callers::NO_TARGET,
    control_block::{State, notice},
};

use super::{
    BpfSession,
    links::TargetSites,
    phase::{HelperId, HelperPhase},
    sites::{SiteKey, costs},
};
use crate::{
    engine::bpf::UprobeProgram,
    presence::{HelperSetup, Joining, Presence},
    probe::{
        attach::{self, AttachSite, Attachment, SiteGroup},
        cost::{Floors, IN_HELPER},
        plan::{Entry, SelectedFunction},
    },
    process::Program,
    python::helper::{Block, FoundFunction, NewFunctions, Room, words},
    session::{SessionError, functions::FunctionRange},
    stats::times::Untimed,
    targets::{TargetIndex, TargetKind},
    units::Pid,
};
pub(super) use late::CHILD_ROOMS;

/// How often a wait asks whether to go on.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Room for a helper that handles signals and nothing else.
pub(super) const NO_PYTHON: [Room; 1] = [Room { functions: 1 }];

/// Said where the names of a helper's functions are more than a session keeps.
const NO_ROOM_FOR_NAMES: &str = "the names of functions take more room than a session has for them: some \
                                 functions are left out of the report, and delayed all the same";

/// The helpers of a session.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    /// What each is given; absent where none may be brought in.
    setup: Option<HelperSetup>,
    at_work: BTreeMap<HelperId, AtWork>,
    /// Not wanted any more, and on their way.
    given_up: Vec<GivenUp>,
    next: u32,
}

impl Helpers {
    pub(super) fn new(setup: Option<HelperSetup>) -> Self {
        Self { setup, ..Self::default() }
    }

    /// The processes that helpers were brought into, and what is shared with those.
    pub(super) fn blocks(&self) -> Vec<(Pid, Arc<Block>)> {
        self.at_work.keys().filter_map(|id| self.block(*id)).collect()
    }

    /// Whether one is on its way into this process that is not wanted any more.
    pub(super) fn is_giving_up(&self, pid: Pid) -> bool {
        self.given_up.iter().any(|given_up| given_up.pid == pid)
    }

    /// A process whose functions are not known, as a thread of it keeps the interpreter's lock and sleeps.
    pub(super) fn asleep(&self) -> Option<Pid> {
        self.at_work.values().find(|at_work| at_work.is_asleep()).map(|at_work| at_work.owner)
    }

    /// Whether there are any.
    pub(super) fn are_any(&self) -> bool {
        !self.at_work.is_empty()
    }

    /// The same of one helper.
    pub(super) fn block(&self, id: HelperId) -> Option<(Pid, Arc<Block>)> {
        self.at_work.get(&id).map(|at_work| (at_work.owner, Arc::clone(&at_work.presence.block)))
    }

    /// What the process ran that a helper was brought into, if that ran already.
    pub(super) fn program(&self, id: HelperId) -> Option<Program> {
        self.at_work.get(&id)?.presence.program().cloned()
    }

    /// What each that is brought in from here on looks for.
    pub(super) fn set_selector(&mut self, selector: &Arc<[u8]>) {
        if let Some(setup) = &mut self.setup {
            setup.selector = Arc::clone(selector);
        }
    }

    /// What each is given; absent where none may be brought in.
    pub(super) fn setup(&self) -> Option<&HelperSetup> {
        self.setup.as_ref()
    }
}

/// A helper on its way that is not wanted any more.
#[derive(Debug)]
pub(super) struct GivenUp {
    pub(super) pid: Pid,
    pub(super) joining: Joining,
    pub(super) range: FunctionRange,
}

/// A helper that is in.
#[derive(Debug)]
struct AtWork {
    presence: Presence,
    new: NewFunctions,
    range: FunctionRange,
    /// The link to its stub in all processes that share it; otherwise each has its own.
    of_family: Option<Attachment>,
    /// The process that it was brought into.
    owner: Pid,
    /// Notices that were told.
    told: u32,
    /// Why it may not list all functions: bits of its report.
    unlisted: u32,
    /// Whether it has looked at everything that was loaded.
    is_active: bool,
    /// Whether its process was ever covered.
    is_covered: bool,
    /// What it says is of no more interest.
    is_over: bool,
}

impl AtWork {
    /// Whether it waits for an interpreter whose lock a thread keeps while it sleeps.
    fn is_asleep(&self) -> bool {
        !self.is_active && self.told & notice::GIL_KEPT != 0
    }
}

impl BpfSession {
    pub(super) fn take_in(&mut self, presence: Presence, range: FunctionRange) -> HelperId {
        let id = HelperId(self.helpers.next);
        self.helpers.next += 1;
        let owner = presence.pid();
        self.have_delayed(&presence.block, range);
        let at_work = AtWork {
            presence,
            new: NewFunctions::default(),
            range,
            of_family: None,
            owner,
            told: 0,
            unlisted: 0,
            is_active: false,
            is_covered: false,
            is_over: false,
        };
        self.helpers.at_work.insert(id, at_work);
        self.allow_signals(id);
        id
    }

    /// A helper that delays by itself is told of the doses, now and whenever they change.
    fn have_delayed(&mut self, block: &Arc<Block>, range: FunctionRange) {
        if !block.delays_in_place() {
            return;
        }
        self.ranges.add(range, block);
        let block: Weak<Block> = Arc::downgrade(block);
        if let Err(error) = self.window.switch().add_mirror(block) {
            tracing::debug!("a helper does not hear of the doses: {error}");
        }
    }

    /// The probe on a helper's stub, where it is still to be attached to the process that is about to be
    /// covered.
    ///
    /// With children, it is attached to all processes that map the helper: the one that it was brought into,
    /// and those forked from it, which then miss no call.
    pub(super) fn stub_of(&mut self, id: HelperId) -> Result<Option<SiteGroup>, SessionError> {
        if let Some(at_work) = self.helpers.at_work.get_mut(&id) {
            at_work.is_covered = true;
        }
        let Some(group) = self.stub_group(id)? else { return Ok(None) };
        let Some(at_work) = self.helpers.at_work.get_mut(&id) else { return Ok(None) };
        if self.context.settings.children && at_work.of_family.is_none() {
            at_work.of_family = attach::attach_to_family(&self.engine, at_work.owner, &group)?;
        }
        Ok(at_work.of_family.is_none().then_some(group))
    }

    /// Takes the probes from the helpers' stubs.
    pub(super) fn leave_stubs(&mut self) {
        for at_work in self.helpers.at_work.values_mut() {
            at_work.of_family = None;
        }
    }

    pub(super) fn stub_group(&mut self, id: HelperId) -> Result<Option<SiteGroup>, SessionError> {
        let Some(AtWork { presence, range, .. }) = self.helpers.at_work.get(&id) else { return Ok(None) };
        if presence.block.delays_in_place() {
            return Ok(None);
        }
        let key = SiteKey {
            file: presence.file.identity(),
            offset: presence.offset,
            semaphore: None,
            program: UprobeProgram::PythonHelper,
            function: range.first,
        };
        let (site, new) = self.sites.enter_key(key)?;
        if new {
            let stub = presence.stub;
            let overhead_ns =
                u32::try_from(costs(&self.context.resolver, &mut self.engine)?.cost(stub).overhead.0);
            let arguments = SiteArguments {
                function: range.first,
                overhead_ns: overhead_ns.unwrap_or(u32::MAX),
                functions: range.count,
                tick_ns: self.context.resolver.costs().tick_ns(),
                ..SiteArguments::default()
            };
            self.engine.set_site(site, arguments)?;
        }
        Ok(Some(SiteGroup {
            file: presence.file.clone(),
            program: UprobeProgram::PythonHelper,
            sites: vec![AttachSite { offset: presence.offset, semaphore: None, site }],
        }))
    }

    /// Whether a helper is in a process or on its way.
    pub(super) fn has_helper(&self, pid: Pid) -> bool {
        let helper = self.processes.get(pid).map(|covered| &covered.helper);
        helper.is_some_and(|helper| !matches!(helper, HelperPhase::Absent))
    }

    /// Takes up what the helpers say, and those that are on their way.
    pub(super) fn poll_helpers(&mut self) {
        self.poll_given_up();
        for pid in self.processes.entering() {
            self.poll_entering(pid);
        }
        for pid in self.processes.pids_from(Pid::FIRST) {
            if let Err(error) = self.poll_joining(pid) {
                self.context.warn(format!("process {pid}: its Python functions are not covered: {error}"));
            }
        }
        for id in self.helpers.at_work.keys().copied().collect::<Vec<_>>() {
            self.listen_to(id);
        }
    }

    /// Attaches to more places of a process that is covered.
    pub(super) fn attach_more(&mut self, pid: Pid, groups: Vec<TargetSites>) -> Result<(), SessionError> {
        let Some(index) = self.processes.get(pid).map(|covered| covered.index) else { return Ok(()) };
        let (attachments, refused) = self.attach_sites(pid, index, &groups)?;
        let sites: usize = attachments.iter().map(|attached| attached.links.sites()).sum();
        tracing::info!("attached {sites} more probe sites of process {pid}");
        let Some(covered) = self.processes.get_mut(pid) else { return Ok(()) };
        covered.attachments.extend(attachments);
        covered.groups.extend(groups);
        self.take_refused(pid, refused);
        self.check_in_place(pid)
    }

    /// Takes up what a helper has new.
    fn listen_to(&mut self, id: HelperId) {
        let Some(at_work) = self.helpers.at_work.get_mut(&id).filter(|at_work| !at_work.is_over) else {
            return;
        };
        let (owner, range, told) = (at_work.owner, at_work.range, at_work.told);
        let heard = at_work.new.take(&at_work.presence.block).and_then(|functions| {
            let report = at_work.presence.block.report()?;
            at_work.told |= report.notices;
            at_work.unlisted |= report.unlisted;
            Ok((functions, report))
        });
        let left_out = at_work.new.left_out();
        if self.context.settings.times
            && let Ok(untimed) = at_work.presence.block.untimed()
            && untimed != Untimed::default()
        {
            self.context.state.untimed.insert(id.0, untimed);
        }
        if self.context.settings.callers
            && let Ok(calls @ 1..) = at_work.presence.block.without_caller()
        {
            self.context.state.without_caller.insert(id.0, calls);
        }
        let kind = at_work.presence.stub;
        // Of one that delays by itself: what it measured, if it has.
        let block = &at_work.presence.block;
        let in_place = block.delays_in_place().then(|| block.floor().ok().flatten());
        let floors = in_place.map(|measured| {
            let warm = measured.unwrap_or(IN_HELPER.warm);
            Floors { warm, cold: IN_HELPER.cold.max(warm) }
        });
        let (functions, report) = match heard {
            Ok(heard) => heard,
            Err(error) => {
                at_work.is_over = true;
                return self
                    .context
                    .warn(format!("process {owner}: its Python functions are not known: {error}"));
            }
        };
        let over = match report.state {
            Some(State::Failed) => Some(at_work.presence.failure().to_string()),
            Some(State::Left) if self.context.state.ended.is_none() => {
                Some("the helper has left; its Python calls are no longer seen".to_owned())
            }
            _ => None,
        };
        at_work.is_over = over.is_some();
        let is_active = report.state == Some(State::Active);
        if is_active && !std::mem::replace(&mut at_work.is_active, is_active) {
            tracing::debug!("the helper is at work in process {owner}");
        }
        for function in functions {
            if let Some(caller) = self.only_caller(&function) {
                // Of what there is no room for, the report says that callers are left out.
                self.context.state.doses().functions.name_caller(range, function.number, &caller);
            } else if let Some(function) = self.selected(&function) {
                tracing::debug!("process {owner}: {} is covered", function.1.name);
                match floors {
                    Some(floors) => self.context.state.note_way(function.1.target, Entry::Helper, floors),
                    None => self.context.note_way(function.1.target, Entry::Helper, kind),
                }
                let has_room = self.context.state.doses().name(range, function.0, &function.1);
                if !has_room {
                    self.context.warn(NO_ROOM_FOR_NAMES.to_owned());
                }
            }
        }
        for text in words::left_out(left_out) {
            self.context.warn(format!("process {owner}: {text}"));
        }
        let mut missed = words::missed(report.notices, report.hook_missed);
        if missed.is_empty() {
            missed.extend(over.clone());
        }
        if !missed.is_empty() {
            let missed = missed.into_iter().map(|text| format!("process {owner}: {text}")).collect();
            self.context.state.missed.insert(id.0, missed);
        }
        for notice in words::notices(report.notices & !told) {
            self.context.warn(format!("process {owner}: {notice}"));
        }
        if let Some(why) = over {
            self.context.warn(format!("process {owner}: {why}"));
        }
    }

    /// A function that only calls others, where that is recorded.
    fn only_caller(&self, found: &FoundFunction) -> Option<SelectedFunction> {
        (self.context.settings.callers && found.target == NO_TARGET)
            .then(|| named(TargetIndex(NO_TARGET), found))
    }

    /// A function as reports name it, if the helper said something that makes sense.
    fn selected(&self, found: &FoundFunction) -> Option<(u32, SelectedFunction)> {
        let target = TargetIndex(found.target);
        let is_python = self
            .context
            .resolver
            .targets()
            .get(target)
            .is_some_and(|target| target.kind == TargetKind::Python);
        is_python.then(|| (found.number, named(target, found)))
    }

    /// Why processes may have functions that their helpers have not found.
    pub(super) fn unlisted(&self) -> Vec<&'static str> {
        words::not_listed(self.helpers.at_work.values().fold(0, |bits, at_work| bits | at_work.unlisted))
    }
}

/// As reports name it.
fn named(target: TargetIndex, found: &FoundFunction) -> SelectedFunction {
    let line = Some(found.line).filter(|line| line.cast_signed() > 0);
    SelectedFunction { target, name: found.name.clone(), file: found.file.clone().into(), line }
}
