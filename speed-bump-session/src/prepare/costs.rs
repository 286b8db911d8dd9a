//! What probes and signals cost on this machine, as far as what is asked for needs it: what an earlier
//! session measured, checked; else measured now; and nothing where helpers do all of it.

use std::{collections::BTreeSet, sync::Arc};

use super::{PrepareError, Request, ground::Ground, times};
use crate::{
    calibrate::{self, CalibrateError, counter::Reading, kept::KeptCosts},
    engine::{EngineChoice, bpf::Form},
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

/// The costs of one session, while it is prepared.
pub(super) struct SessionCosts {
    kept: KeptCosts,
    /// Whether the table was kept by another session, and is to be checked.
    is_kept: bool,
    began: Reading,
}

impl SessionCosts {
    /// Asks of the machine what every attach does, and makes a resolver with what is known of costs.
    ///
    /// # Errors
    /// Nothing can be attached here, an engine is asked for that needs a helper where none may come, or the
    /// machine could not be measured.
    pub(super) fn begin(
        request: &Request,
        targets: &Arc<Targets>,
        policies: &PolicyTable,
    ) -> Result<(Self, Resolver), PrepareError> {
        let began = Reading::now();
        let ground = Ground::read();
        ground.check()?;
        if let EngineChoice::Only(engine) = policies.choice()
            && policies.insists_on_helper()
            && !request.inject
        {
            return Err(PrepareError::WithoutHelper(engine));
        }
        let kernel = ground.kernel;
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

    /// Makes sure of the costs of these kinds of sites, and of signals if there will be any.
    ///
    /// # Errors
    /// The machine could not be measured, or signals are asked for and cannot be sent.
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

    /// Returns whether anything has changed.
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

/// Measures the machine in full, and keeps what was found.
///
/// # Errors
/// As [`calibrate::measure`].
pub fn measure(kernel: &KernelFacts, kept: &KeptCosts) -> Result<CostTable, CalibrateError> {
    let table = calibrate::measure(kernel)?;
    kept.write(&table);
    Ok(table)
}

/// The same in the midst of a session that has to do without the helper somewhere.
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

/// Whether it is known from the start that there will be probes, if anything is selected.
fn needs_probes(request: &Request, targets: &Targets, policies: &PolicyTable) -> bool {
    let by_helper = request.inject
        && policies.choice().delays_in_helper()
        && matches!(request.entry, EntryChoice::Auto | EntryChoice::Only(EntrySource::Helper));
    let is_helpers = |kind| kind == TargetKind::Python && by_helper;
    targets.iter().any(|(_, target)| !is_helpers(target.kind))
}

/// All kinds of sites that what is asked for may need, where it is not known which.
pub(super) fn likely_kinds(
    request: &Request,
    targets: &Targets,
    policies: &PolicyTable,
) -> BTreeSet<SiteKind> {
    if needs_probes(request, targets, policies) { SiteKind::ALL.into() } else { BTreeSet::new() }
}

/// Whether there will be signals: where the kernel keeps what sending them takes.
///
/// # Errors
/// They are asked for and cannot be.
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
