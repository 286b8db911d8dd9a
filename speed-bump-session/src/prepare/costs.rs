//! The costs of probes and signals on this machine. We check costs from an earlier session, and measure
//! others now. We measure nothing if helpers do all the work.

use std::{collections::BTreeSet, sync::Arc};

use super::{PrepareError, Request, host::Host, times};
use crate::{
    calibrate::{self, CalibrateError, counter::Reading, kept::KeptCosts},
    engine::{EngineChoice, EngineKind, bpf::Form},
    kernel::{KernelFacts, TaskOffsets},
    policy::PolicyTable,
    probe::{
        cost::{CostTable, Costs},
        resolve::Resolver,
        site::SiteKind,
    },
    python::entry_source::{EntryChoice, EntrySource},
    targets::{TargetKind, Targets},
};

/// The costs of one session, while we prepare it.
pub(super) struct SessionCosts {
    kept: KeptCosts,
    /// Whether the costs come from an earlier session, so that we must check them.
    is_kept: bool,
    began: Reading,
}

impl SessionCosts {
    /// Checks that this machine can attach at all, and makes a resolver with the known costs.
    ///
    /// # Errors
    /// We can attach nothing here, the requested engine needs a helper and the user forbids helpers, or we
    /// could not measure the machine.
    pub(super) fn begin(
        request: &Request,
        targets: &Arc<Targets>,
        policies: &PolicyTable,
    ) -> Result<(Self, Resolver), PrepareError> {
        let began = Reading::now();
        let host = Host::read();
        host.check()?;
        if let EngineChoice::Only(engine) = policies.choice()
            && policies.insists_on_helper()
            && !request.inject
        {
            return Err(PrepareError::WithoutHelper(engine));
        }
        let kernel = host.kernel;
        let kept = KeptCosts::for_kernel(&kernel);
        let mut known = kept.read(&kernel);
        let is_kept = known.is_some();
        if is_kept {
            tracing::info!("what probes cost is known from an earlier session");
        }
        if known.is_none() && needs_probes(request, targets, policies) {
            known = Some(measure(&kernel, &kept)?);
        }
        let keeper = kept.clone();
        let late = move |form| measure_late(form, &keeper);
        let costs = Costs::new(Form::best(&kernel), known, late);
        let resolver = Resolver::new(Arc::clone(targets), costs, request.entry, request.inject)
            .timing_calls(times::of_native(request, targets));
        Ok((Self { kept, is_kept, began }, resolver))
    }

    /// Checks or measures the costs of these kinds of sites, and the cost of signals if the session will send
    /// any.
    ///
    /// # Errors
    /// We could not measure the machine, or the user requests signals and we cannot send them.
    pub(super) fn finish(
        self,
        request: &Request,
        policies: &PolicyTable,
        kinds: &BTreeSet<SiteKind>,
        resolver: &mut Resolver,
    ) -> Result<(), PrepareError> {
        let signals = signals(request, policies, resolver)?;
        if !kinds.is_empty() || signals.is_some() {
            let mut table = resolver.calibration().clone();
            let unchecked = if self.is_kept { kinds } else { &BTreeSet::new() };
            if (!unchecked.is_empty() || signals.is_some())
                && self.check(&mut table, unchecked, signals, policies.wants_helper())?
            {
                tracing::info!("costs of probes have changed, and were measured again");
                self.kept.write(&table);
            }
            resolver.costs_mut().set(table);
        }
        resolver.costs_mut().set_tick_ns(self.began.tick_ns());
        Ok(())
    }

    /// Checks the costs, and measures each cost again that has changed. Returns whether a cost has changed.
    fn check(
        &self,
        table: &mut CostTable,
        kinds: &BTreeSet<SiteKind>,
        signals: Option<TaskOffsets>,
        insists: bool,
    ) -> Result<bool, PrepareError> {
        match calibrate::check(table, kinds, signals) {
            Err(error @ CalibrateError::Signal(_)) if !insists => {
                tracing::info!("long delays are spun in the kernel: {error}");
                table.signal = None;
                Ok(true)
            }
            checked => Ok(checked?),
        }
    }
}

/// Measures everything on this machine, and stores the result.
///
/// # Errors
/// See [`calibrate::measure`].
pub fn measure(kernel: &KernelFacts, kept: &KeptCosts) -> Result<CostTable, CalibrateError> {
    let table = calibrate::measure(kernel)?;
    kept.write(&table);
    Ok(table)
}

/// Measures during a session that needs probes unexpectedly, because we could not load a helper.
fn measure_late(form: Form, kept: &KeptCosts) -> CostTable {
    match calibrate::measure_form(form) {
        Ok(table) => {
            kept.write(&table);
            table
        }
        Err(error) => {
            tracing::warn!("delays are not corrected by what a probe costs: {error}");
            CostTable::unknown(form)
        }
    }
}

/// Whether the user may add native targets while the session runs. Their probes delay exactly from the first
/// call on. So we must know their costs before: the event loop has no time to measure.
///
/// A session with only helpers, which does not follow children, refuses native targets.
pub(super) fn may_add_probes(request: &Request) -> bool {
    let may_add = request.allow_empty || request.times_later;
    may_add && (request.engine != EngineChoice::Only(EngineKind::Helper) || request.children)
}

/// Whether the session needs probes for its targets, or may get them later.
fn needs_probes(request: &Request, targets: &Targets, policies: &PolicyTable) -> bool {
    let by_helper = request.inject
        && policies.choice().delays_in_helper()
        && matches!(request.entry, EntryChoice::Auto | EntryChoice::Only(EntrySource::Helper));
    let is_helpers = |kind| kind == TargetKind::Python && by_helper;
    may_add_probes(request) || targets.iter().any(|(_, target)| !is_helpers(target.kind))
}

/// For a command whose plan we do not know yet: all kinds of sites if the session may need probes, and
/// otherwise none.
pub(super) fn likely_kinds(
    request: &Request,
    targets: &Targets,
    policies: &PolicyTable,
) -> BTreeSet<SiteKind> {
    if needs_probes(request, targets, policies) { SiteKind::ALL.into() } else { BTreeSet::new() }
}

/// Where the kernel keeps what sending signals needs; `None` if we will send no signals.
///
/// # Errors
/// The user requests signals, and we cannot send them.
fn signals(
    request: &Request,
    policies: &PolicyTable,
    resolver: &Resolver,
) -> Result<Option<TaskOffsets>, PrepareError> {
    let is_asked_for = policies.wants_helper();
    let is_wanted = !policies.signalled(resolver.form()).is_empty();
    let may_come = request.inject && (is_asked_for || resolver.targets().has_kind(TargetKind::Python));
    if !is_wanted || !may_come {
        return Ok(None);
    }
    match TaskOffsets::usable() {
        Ok(offsets) => Ok(Some(offsets)),
        Err(why) if is_asked_for => Err(PrepareError::NoSignals(why.to_string())),
        Err(why) => {
            tracing::info!("long delays are spun in the kernel: {why}");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::targets::source::TargetSource;

    #[test]
    fn costs_are_known_before_a_session_that_may_add_native_targets() {
        let request = Request::new(TargetSource::lines("targets", &["py:*/calls.py:slow"]));
        let targets = request.targets.read(false).unwrap().decide(|_| false);
        let kinds = |change: &dyn Fn(&mut Request)| {
            let mut request = request.clone();
            change(&mut request);
            let policies = PolicyTable::new(&targets, request.default, request.engine);
            likely_kinds(&request, &targets, &policies)
        };
        let all = BTreeSet::from(SiteKind::ALL);
        assert_eq!(kinds(&|_| {}), BTreeSet::new());
        assert_eq!(kinds(&|request| request.times_later = true), all);
        assert_eq!(kinds(&|request| request.allow_empty = true), all);
        let by_helper = EngineChoice::Only(EngineKind::Helper);
        // The programs that follow children are loaded, so the user can add native targets.
        let alone = |children| {
            kinds(&move |request: &mut Request| {
                (request.times_later, request.engine, request.children) = (true, by_helper, children);
            })
        };
        assert_eq!((alone(true), alone(false)), (all, BTreeSet::new()));
    }
}
