//! `--times` of native functions: the sites where their calls end.

use std::{collections::HashMap, sync::Arc};

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

/// Where the calls of timed functions end.
#[derive(Debug, Default)]
pub(super) struct Exits(HashMap<u32, Ended>);

/// What ends at a site.
#[derive(Clone, Debug)]
struct Ended {
    /// Where the calls begin.
    entry: u32,
    function: u32,
    selected: Arc<SelectedFunction>,
}

/// A site where calls begin, as the session has numbered it.
pub(super) struct EntrySite<'a> {
    pub(super) planned: &'a PlannedSite,
    pub(super) index: u32,
    pub(super) function: u32,
    pub(super) selected: &'a SelectedFunction,
}

impl Exits {
    /// The sites where the calls end that are seen at a site, which the engine is told of if they are new.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn enter(
        &mut self,
        entry: &EntrySite<'_>,
        sites: &mut SiteTable,
        engine: &mut BpfEngine,
        resolver: &Resolver,
    ) -> Result<Vec<AttachSite>, SessionError> {
        let exits = entry.planned.timing.exits();
        if exits.is_empty() {
            return Ok(Vec::new());
        }
        let function = entry.function;
        let selected = Arc::new(entry.selected.clone());
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
                    ..SiteArguments::default()
                };
                engine.set_site(index, arguments)?;
                let selected = Arc::clone(&selected);
                self.0.insert(index, Ended { entry: entry.index, function, selected });
                engine.functions().times().set_timed(function, true);
            }
            of_calls.push(AttachSite { offset: exit.offset, semaphore: None, site: index });
        }
        Ok(of_calls)
    }

    /// The kernel refuses a probe where the calls of a function end: they are not timed. What there is to say
    /// of it; `None` if calls begin at that site.
    pub(super) fn take_refused(&self, refused: &RefusedSite, engine: &mut BpfEngine) -> Option<Vec<String>> {
        let Ended { entry, function, selected } = self.0.get(&refused.site.site)?;
        engine.functions().times().set_timed(*function, false);
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

/// How many calls of native functions are in no time; `None` where that is not known.
pub(super) fn native_untimed(engine: &BpfEngine) -> Option<Untimed> {
    let faults = engine.faults().ok()?;
    let count = |fault: Fault| faults.get(fault as usize).copied().unwrap_or(0);
    Some(Untimed { unmatched: count(Fault::Unmatched), without_room: count(Fault::TooDeep) })
}

pub(super) fn overhead_ns(costs: &CostTable, kind: SiteKind) -> u32 {
    u32::try_from(costs.cost(kind).overhead.0).unwrap_or(u32::MAX)
}

/// [`SiteArguments::way_ns`] at a site of this kind: 0 where calls are not timed.
pub(super) fn way_ns(costs: &CostTable, site: &PlannedSite) -> u32 {
    let overhead = |kind| overhead_ns(costs, kind);
    match site.timing {
        Timing::NotAsked | Timing::Impossible(_) => 0,
        // The way out of the kernel's short cut, and into it through a breakpoint.
        Timing::Exits(_) if site.kind == SiteKind::Nop5 => {
            (overhead(SiteKind::Nop5) / 2).saturating_add(overhead(SiteKind::Nop) / 2).max(1)
        }
        Timing::Exits(_) => overhead(site.kind).max(1),
    }
}
