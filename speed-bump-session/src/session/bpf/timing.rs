//! `--times` for native functions: the sites at which their calls end.
//!
//! The user can switch timing off while the session runs. Then we do not record the beginnings of calls, and
//! attach no probes at exits. The user cannot switch timing on again: we could mistake a call that was in
//! progress when timing stopped for a call that ends later.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use speed_bump_abi::{SiteArguments, maps::Fault};

use super::sites::{SiteKey, SiteTable, costs};
use crate::{
    engine::bpf::{BpfEngine, UprobeProgram},
    probe::{
        attach::{AttachSite, RefusedSite},
        cost::CostTable,
        plan::{PlannedSite, SelectedFunction, Timing},
        resolve::Resolver,
        site::SiteKind,
    },
    session::error::SessionError,
    stats::times::{Untimed, not_timed},
};

/// The exits of the timed functions.
#[derive(Debug)]
pub(super) struct Exits {
    ended: HashMap<u32, Ended>,
    /// For each entry site: the value of [`SiteArguments::way_ns`] while calls are timed.
    entries: BTreeMap<u32, u32>,
    /// The timed functions.
    functions: BTreeSet<u32>,
    phase: TimingPhase,
}

/// The state of timing native functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimingPhase {
    Later,
    /// We attach probes at exits, and do not yet record the beginnings of calls.
    Attaching,
    On,
    Over,
}

/// The function whose calls end at a site.
#[derive(Clone, Debug)]
struct Ended {
    /// The index of the site where the function's calls begin.
    entry: u32,
    functions: Vec<u32>,
    selected: Arc<SelectedFunction>,
}

/// A site at which calls begin, with its indices in the session.
pub(super) struct EntrySite<'a> {
    pub(super) planned: &'a PlannedSite,
    pub(super) index: u32,
    /// The function that its calls count as; [`NO_FUNCTION`](speed_bump_abi::NO_FUNCTION) where each call
    /// tells.
    pub(super) function: u32,
    /// All functions that its calls may count as, if they are known.
    pub(super) functions: Vec<u32>,
    /// The number of a function with targets for some callers alone.
    pub(super) called: Option<u32>,
    pub(super) selected: Option<&'a SelectedFunction>,
}

impl EntrySite<'_> {
    /// The value of [`SiteArguments::callers`].
    pub(super) fn callers(&self) -> u32 {
        self.called.map_or(0, |called| called.saturating_add(1))
    }
}

impl Exits {
    pub(super) fn new(is_on: bool) -> Self {
        let phase = if is_on { TimingPhase::On } else { TimingPhase::Later };
        let (ended, entries, functions) = Default::default();
        Self { ended, entries, functions, phase }
    }

    /// Whether probes at exits should be attached now.
    pub(super) fn are_attached(&self) -> bool {
        matches!(self.phase, TimingPhase::Attaching | TimingPhase::On)
    }

    /// The present value of [`SiteArguments::way_ns`] for a new site. `way_ns` is the site's value while
    /// calls are timed.
    pub(super) fn remembered(&mut self, entry: u32, way_ns: u32) -> u32 {
        if way_ns > 0 {
            self.entries.insert(entry, way_ns);
        }
        if self.phase == TimingPhase::On { way_ns } else { 0 }
    }

    /// From now on, native functions get probes at their exits.
    ///
    /// # Errors
    /// The session has timed native calls before.
    pub(super) fn begin(&mut self) -> Result<(), SessionError> {
        match self.phase {
            TimingPhase::Over if !self.entries.is_empty() => Err(SessionError::Retarget(
                "calls of native functions were timed before in this session: begin another one".to_owned(),
            )),
            TimingPhase::Over | TimingPhase::Later | TimingPhase::Attaching => {
                self.phase = TimingPhase::Attaching;
                Ok(())
            }
            TimingPhase::On => Ok(()),
        }
    }

    /// Starts or stops recording the beginnings of calls.
    ///
    /// # Errors
    /// The kernel refuses the change.
    pub(super) fn remember(&mut self, on: bool, engine: &mut BpfEngine) -> Result<(), SessionError> {
        self.phase = if on { TimingPhase::On } else { TimingPhase::Over };
        for function in self.functions.iter().filter(|_| on) {
            engine.functions().times().set_timed(*function, true);
        }
        for (entry, way_ns) in &self.entries {
            let arguments = engine.site(*entry)?;
            let way_ns = if on { *way_ns } else { 0 };
            engine.set_site(*entry, SiteArguments { way_ns, ..arguments })?;
        }
        Ok(())
    }

    /// The exits that belong to an entry site, with their indices. Tells the engine about new ones.
    ///
    /// # Errors
    /// There is no room for the exits.
    pub(super) fn enter(
        &mut self,
        entry: &EntrySite<'_>,
        sites: &mut SiteTable,
        engine: &mut BpfEngine,
        resolver: &Resolver,
    ) -> Result<Vec<AttachSite>, SessionError> {
        let exits = entry.planned.timing.exits();
        let Some(selected) = entry.selected.filter(|_| !exits.is_empty()) else { return Ok(Vec::new()) };
        let function = entry.function;
        let selected = Arc::new(selected.clone());
        // A target for other callers may be new at a function that is known.
        for function in &entry.functions {
            if self.functions.insert(*function) && self.phase == TimingPhase::On {
                engine.functions().times().set_timed(*function, true);
            }
        }
        let mut of_calls = Vec::with_capacity(exits.len());
        for exit in exits {
            let key = SiteKey {
                file: entry.planned.file.identity(),
                offset: exit.offset,
                semaphore: None,
                program: UprobeProgram::SiteLeft,
                function,
            };
            let (index, new) = sites.enter_key(key)?;
            if new {
                let arguments = SiteArguments {
                    function,
                    overhead_ns: overhead_ns(costs(resolver, engine)?, exit.kind),
                    condition: exit.condition.to_bits(),
                    callers: entry.callers(),
                    ..SiteArguments::default()
                };
                engine.set_site(index, arguments)?;
                let (selected, functions) = (Arc::clone(&selected), entry.functions.clone());
                self.ended.insert(index, Ended { entry: entry.index, functions, selected });
            }
            of_calls.push(AttachSite { offset: exit.offset, semaphore: None, site: index });
        }
        Ok(of_calls)
    }

    /// Handles the kernel's refusal of a probe at an exit: we do not time the function's calls. Returns the
    /// warning; `None` if the site is no exit.
    pub(super) fn take_refused(
        &mut self,
        refused: &RefusedSite,
        engine: &mut BpfEngine,
    ) -> Option<Vec<String>> {
        let Ended { entry, functions, selected } = self.ended.get(&refused.site.site)?;
        self.entries.remove(entry);
        for function in functions {
            self.functions.remove(function);
            engine.functions().times().set_timed(*function, false);
        }
        let told = engine
            .site(*entry)
            .and_then(|arguments| engine.set_site(*entry, SiteArguments { way_ns: 0, ..arguments }));
        if let Err(error) = told {
            tracing::debug!("calls of {} are still remembered: {error}", selected.name);
        }
        let why = format!(
            "the kernel refuses a probe where it is left, at {}: {}",
            refused.site.offset, refused.error
        );
        Some(not_timed(std::iter::once((&**selected, why.as_str()))).into_iter().collect())
    }
}

/// How many native calls have no time; `None` if unknown.
pub(super) fn native_untimed(engine: &BpfEngine) -> Option<Untimed> {
    let faults = engine.faults().ok()?;
    let count = |fault: Fault| faults.get(fault as usize).copied().unwrap_or(0);
    Some(Untimed { unmatched: count(Fault::Unmatched), without_room: count(Fault::TooDeep) })
}

pub(super) fn overhead_ns(costs: &CostTable, kind: SiteKind) -> u32 {
    u32::try_from(costs.cost(kind).overhead.0).unwrap_or(u32::MAX)
}

/// [`SiteArguments::way_ns`] for a site of this kind; 0 if we do not time the site's calls.
pub(super) fn way_ns(costs: &CostTable, site: &PlannedSite) -> u32 {
    let overhead = |kind| overhead_ns(costs, kind);
    match site.timing {
        Timing::NotAsked | Timing::Impossible(_) => 0,
        // At the start of the call, the thread leaves the kernel on the optimised path. At the end of the
        // call, it enters the kernel through a breakpoint. So we add half of the overhead of each kind.
        Timing::Exits(_) if site.kind == SiteKind::Nop5 => {
            (overhead(SiteKind::Nop5) / 2).saturating_add(overhead(SiteKind::Nop) / 2).max(1)
        }
        Timing::Exits(_) => overhead(site.kind).max(1),
    }
}
