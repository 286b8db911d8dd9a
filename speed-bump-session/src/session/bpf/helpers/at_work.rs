//! One helper in a process and in the processes forked from it, and the helper's reports.

use speed_bump_abi::{
    callers::NO_TARGET,
    control_block::{State, notice},
};

use crate::{
    presence::Presence,
    probe::{
        attach::Attachment,
        cost::{Floors, IN_HELPER},
        plan::{Entry, SelectedFunction},
    },
    python::helper::{FoundFunction, NewFunctions, words},
    session::{
        bpf::{context::Context, phase::HelperId},
        functions::FunctionRange,
    },
    stats::times::Untimed,
    targets::{TargetIndex, TargetKind},
    units::Pid,
};

/// The warning if a helper reports more names of functions than a session can store.
const NO_ROOM_FOR_NAMES: &str = "the names of functions take more room than a session has for them: some \
                                 functions are left out of the report, and delayed all the same";

/// A helper that is loaded.
#[derive(Debug)]
pub(in crate::session::bpf) struct AtWork {
    pub(in crate::session::bpf) presence: Presence,
    new: NewFunctions,
    pub(in crate::session::bpf) range: FunctionRange,
    /// The link to the helper's stub, if one link attaches to the stub in all processes that share it.
    /// Otherwise each process has its own link.
    pub(in crate::session::bpf) of_family: Option<Attachment>,
    /// The process into which we loaded the helper.
    pub(in crate::session::bpf) owner: Pid,
    /// The notices that we have passed on, as bits.
    told: u32,
    /// Why the helper may not list all functions: bits of the helper's report.
    pub(super) unlisted: u32,
    /// Whether the helper has listed all functions that were loaded.
    pub(super) is_active: bool,
    /// Whether the owner was ever covered.
    pub(in crate::session::bpf) is_covered: bool,
    /// Whether the helper's reports no longer matter.
    pub(super) is_over: bool,
}

impl AtWork {
    /// A helper that we have just loaded, with this range of functions.
    pub(super) fn new(presence: Presence, range: FunctionRange) -> Self {
        Self {
            owner: presence.pid(),
            presence,
            new: NewFunctions::default(),
            range,
            of_family: None,
            told: 0,
            unlisted: 0,
            is_active: false,
            is_covered: false,
            is_over: false,
        }
    }

    /// Whether the helper waits for the interpreter's lock, which a sleeping thread keeps.
    pub(super) fn is_asleep(&self) -> bool {
        !self.is_active && self.told & notice::GIL_KEPT != 0
    }

    /// Handles the helper's new reports.
    pub(super) fn listen(&mut self, id: HelperId, context: &mut Context) {
        if self.is_over {
            return;
        }
        let (owner, range, told) = (self.owner, self.range, self.told);
        let heard = self.new.take(&self.presence.block).and_then(|functions| {
            let report = self.presence.block.report()?;
            self.told |= report.notices;
            self.unlisted |= report.unlisted;
            context.state.callers_found |= report.callers_found;
            Ok((functions, report))
        });
        let left_out = self.new.left_out();
        if context.settings.may_time
            && let Ok(untimed) = self.presence.block.untimed()
            && untimed != Untimed::default()
        {
            context.state.untimed.insert(id.0, untimed);
        }
        if context.settings.callers
            && let Ok(calls @ 1..) = self.presence.block.without_caller()
        {
            context.state.without_caller.insert(id.0, calls);
        }
        let kind = self.presence.stub;
        // A helper that delays by itself measures its floor. Perhaps it has not done so yet.
        let block = &self.presence.block;
        let in_place = block.delays_in_place().then(|| block.floor().ok().flatten());
        let floors = in_place.map(|measured| {
            let warm = measured.unwrap_or(IN_HELPER.warm);
            Floors { warm, cold: IN_HELPER.cold.max(warm) }
        });
        let (functions, report) = match heard {
            Ok(heard) => heard,
            Err(error) => {
                self.is_over = true;
                return context.warn(format!("process {owner}: its Python functions are not known: {error}"));
            }
        };
        let over = match report.state {
            Some(State::Failed) => Some(self.presence.failure().to_string()),
            Some(State::Left) if context.state.ended.is_none() => {
                Some("the helper has left; its Python calls are no longer seen".to_owned())
            }
            _ => None,
        };
        self.is_over = over.is_some();
        let is_active = report.state == Some(State::Active);
        if is_active && !std::mem::replace(&mut self.is_active, is_active) {
            tracing::debug!("the helper is at work in process {owner}");
        }
        for function in functions {
            if let Some(caller) = only_caller(&function, context) {
                // If there is no room for callers, the session's report says so.
                context.state.doses().functions.name_caller(range, function.number, &caller);
            } else if let Some(function) = selected(&function, context) {
                tracing::debug!("process {owner}: {} is covered", function.1.name);
                match floors {
                    Some(floors) => context.state.note_entry(function.1.target, Entry::Helper, floors),
                    None => context.note_entry(function.1.target, Entry::Helper, kind),
                }
                let has_room = context.state.doses().name(range, function.0, &function.1);
                if !has_room {
                    context.warn(NO_ROOM_FOR_NAMES.to_owned());
                }
            }
        }
        for text in words::left_out(left_out) {
            context.warn(format!("process {owner}: {text}"));
        }
        let mut missed = words::missed(report.notices, report.hook_missed);
        if missed.is_empty() {
            missed.extend(over.clone());
        }
        if !missed.is_empty() {
            let missed = missed.into_iter().map(|text| format!("process {owner}: {text}")).collect();
            context.state.missed.insert(id.0, missed);
        }
        for notice in words::notices(report.notices & !told) {
            context.warn(format!("process {owner}: {notice}"));
        }
        if let Some(why) = over {
            context.warn(format!("process {owner}: {why}"));
        }
    }
}

/// A function that only calls selected functions, if the helper records callers.
fn only_caller(found: &FoundFunction, context: &Context) -> Option<SelectedFunction> {
    (context.settings.callers && found.target == NO_TARGET).then(|| named(TargetIndex(NO_TARGET), found))
}

/// The function as reports show it, with its number. `None` if the helper's record makes no sense.
fn selected(found: &FoundFunction, context: &Context) -> Option<(u32, SelectedFunction)> {
    let target = TargetIndex(found.target);
    let is_python =
        context.resolver.targets().get(target).is_some_and(|target| target.kind == TargetKind::Python);
    is_python.then(|| (found.number, named(target, found)))
}

/// The function as reports show it.
fn named(target: TargetIndex, found: &FoundFunction) -> SelectedFunction {
    let line = Some(found.line).filter(|line| line.cast_signed() > 0);
    SelectedFunction { target, name: found.name.clone(), file: found.file.clone().into(), line }
}
