//! `--times` of native functions: the sites where their calls end.

use std::{collections::HashMap, sync::Arc};

use speed_bump_abi::{SiteArguments, maps::Fault};

use super::{
    BpfSession,
    sites::{SiteKey, costs},
};
use crate::{
    engine::bpf::UprobeProgram,
    probe::{
        attach::{AttachSite, RefusedSite},
        cost::CostTable,
        plan::{PlannedSite, SelectedFunction, Timing},
        site::SiteKind,
    },
    session::SessionError,
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

impl BpfSession {
    /// The sites where the calls end that are seen at a site, which the engine is told of if they are new.
    pub(super) fn enter_exits(
        &mut self,
        site: &PlannedSite,
        entry: u32,
        function: u32,
        selected: &SelectedFunction,
    ) -> Result<Vec<AttachSite>, SessionError> {
        let exits = site.timing.exits();
        if exits.is_empty() {
            return Ok(Vec::new());
        }
        let selected = Arc::new(selected.clone());
        let mut sites = Vec::with_capacity(exits.len());
        for exit in exits {
            let key = SiteKey {
                file: site.file.identity(),
                offset: exit.offset,
                semaphore: None,
                program: UprobeProgram::SiteLeft,
                function,
            };
            let (index, new) = self.sites.enter_key(key)?;
            if new {
                let arguments = SiteArguments {
                    function,
                    overhead_ns: overhead_ns(costs(&self.context.resolver, &mut self.engine)?, exit.kind),
                    condition: exit.condition.to_bits(),
                    ..SiteArguments::default()
                };
                self.engine.set_site(index, arguments)?;
                let selected = Arc::clone(&selected);
                self.exits.0.insert(index, Ended { entry, function, selected });
                self.engine.functions().times().set_timed(function, true);
            }
            sites.push(AttachSite { offset: exit.offset, semaphore: None, site: index });
        }
        Ok(sites)
    }

    /// The kernel refuses a probe where the calls of a function end: they are not timed. Returns whether that
    /// is so.
    pub(super) fn take_refused_exit(&mut self, refused: &RefusedSite) -> bool {
        let Some(Ended { entry, function, selected }) = self.exits.0.get(&refused.site.site).cloned() else {
            return false;
        };
        self.engine.functions().times().set_timed(function, false);
        let told = self
            .engine
            .site(entry)
            .and_then(|arguments| self.engine.set_site(entry, SiteArguments { way_ns: 0, ..arguments }));
        if let Err(error) = told {
            tracing::debug!("calls of {} are still remembered: {error}", selected.name);
        }
        let why = format!(
            "the kernel refuses a probe where it is left, at {}: {}",
            refused.site.offset, refused.error
        );
        not_timed(std::iter::once((&*selected, why.as_str())))
            .into_iter()
            .for_each(|text| self.context.warn(text));
        true
    }

    /// Tells of functions that are not timed and that were not known when the session began.
    pub(super) fn tell_untimed(&mut self, late: &[(&SelectedFunction, &str)]) {
        if self.command.is_some() || self.window.was_opened() {
            not_timed(late.iter().copied()).into_iter().for_each(|text| self.context.warn(text));
        }
    }

    /// Looks how many calls are in no time.
    pub(super) fn look_at_untimed(&mut self) {
        if !self.context.resolver.times_calls() {
            return;
        }
        let Ok(faults) = self.engine.faults() else { return };
        let count = |fault: Fault| faults.get(fault as usize).copied().unwrap_or(0);
        self.context.state.native_untimed =
            Untimed { unmatched: count(Fault::Unmatched), without_room: count(Fault::TooDeep) };
    }
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
