//! Which engine delays what, as far as that is known before anything is attached.

use anyhow::anyhow;

use super::{
    args::SelectArgs,
    exit::{Failure, SYSTEM, USAGE},
    prepare::Planned,
};
use crate::{
    calibrate::Calibration,
    engine::{EngineKind, signal::automatic_above},
    kernel::{TaskOffsets, namespace::Namespace},
    policy::PolicyTable,
    probe::{plan::Plan, resolve::Resolver},
    targets::{TargetKind, Targets},
    units::Nanos,
};

/// Measures what signals cost, if the session is to use any.
pub(super) fn prepare(
    select: &SelectArgs,
    targets: &Targets,
    policies: &PolicyTable,
    calibration: &mut Calibration,
) -> Result<(), Failure> {
    let is_asked_for = policies.wants_helper();
    if is_asked_for && select.no_inject {
        let text =
            "--engine signal needs the helper in the process: leave out --no-inject, or use --engine bpf";
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    let is_wanted = !policies.signalled(calibration.form()).is_empty();
    if !is_wanted || select.no_inject || !(is_asked_for || targets.has_kind(TargetKind::Python)) {
        return Ok(());
    }
    let measured = match offsets() {
        Ok(offsets) => calibration.measure_signal(offsets).map_err(Failure::from),
        Err(why) => {
            let text = format!("the engine `signal` does not work here: {why}; use `--engine bpf`");
            Err(Failure::new(SYSTEM, anyhow!(text)))
        }
    };
    match measured {
        Err(failure) if !is_asked_for => {
            tracing::info!("long delays are spun in the kernel: {}", failure.error);
            Ok(())
        }
        measured => measured,
    }
}

/// Where the kernel keeps what is looked at before a signal is sent.
fn offsets() -> Result<TaskOffsets, String> {
    if Namespace::Pid.is_initial() != Some(true) {
        return Err(
            "the tool is not in the initial PID namespace, and would take one process for another".to_owned()
        );
    }
    TaskOffsets::read().map_err(|error| error.to_string())
}

/// Who will spin a delay in a process.
pub(super) fn of(policies: &PolicyTable, delay: Nanos, plan: &Plan, calibration: &Calibration) -> EngineKind {
    let helper_is_in = plan.wants_helper() || policies.wants_helper();
    policies.engine(delay, calibration.form(), helper_is_in && calibration.signal().is_some())
}

/// The engines for a process, in words.
pub(super) fn in_words(policies: &PolicyTable, plan: &Plan, calibration: &Calibration) -> String {
    let mut kinds: Vec<EngineKind> =
        policies.delays().into_iter().map(|delay| of(policies, delay, plan, calibration)).collect();
    kinds.sort_unstable_by_key(|kind| *kind == EngineKind::Signal);
    kinds.dedup();
    match kinds.as_slice() {
        [EngineKind::Bpf, EngineKind::Signal] => {
            format!("bpf, and signal above {}", automatic_above(calibration.form()))
        }
        [kind, ..] => kind.to_string(),
        [] => EngineKind::Bpf.to_string(),
    }
}

/// A line for each target whose delay is spun in the kernel and is long enough to hold up others.
pub(super) fn long_delays(policies: &PolicyTable, resolver: &Resolver, planned: &[Planned]) -> Vec<String> {
    let form = resolver.calibration().form();
    if form.longest_spin().is_some() {
        return Vec::new(); // such a delay is refused, or the helper's
    }
    let in_kernel = |delay| {
        let is_bpf =
            |planned: &Planned| of(policies, delay, &planned.plan, resolver.calibration()) == EngineKind::Bpf;
        // Of a command nothing is known but whether the helper may come.
        let may_be_signalled = resolver.calibration().signal().is_some();
        let any = planned.is_empty() && policies.engine(delay, form, may_be_signalled) == EngineKind::Bpf;
        any || planned.iter().any(is_bpf)
    };
    let mut notices = Vec::new();
    for (index, target) in resolver.targets().iter() {
        let delay = policies.delay(index);
        if delay > automatic_above(form) && in_kernel(delay) {
            notices.push(format!(
                "warning: line {}: a delay of {delay} is spun in the kernel, where nothing else runs on that \
                 CPU meanwhile unless the kernel is fully preemptible; as many threads as there are CPUs can \
                 hold up the whole machine; `--engine signal` spins it in the process",
                target.line
            ));
        }
    }
    notices
}
