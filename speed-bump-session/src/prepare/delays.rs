//! Which engine will spin the delays of targets, and notices about that.

use super::{look::Planned, notice::Notice};
use crate::{
    engine::{EngineKind, signal::automatic_above},
    policy::PolicyTable,
    probe::cost::{Floors, IN_HELPER},
    probe::{plan::Plan, resolve::Resolver},
    targets::TargetIndex,
    units::Nanos,
};

/// Which engine will spin the delay of a target in a process.
pub(super) fn engine(
    policies: &PolicyTable,
    target: TargetIndex,
    plan: &Plan,
    resolver: &Resolver,
) -> EngineKind {
    if let Some(engine) = policies.in_helper(target).filter(|_| plan.wants_helper()) {
        return engine;
    }
    let delay = policies.delay(target);
    let helper_is_in = plan.wants_helper() || policies.wants_helper();
    policies.engine(delay, resolver.form(), helper_is_in && resolver.signal().is_some())
}

/// The notices about the delays of targets.
pub(super) fn notices(policies: &PolicyTable, resolver: &Resolver, planned: &[Planned]) -> Vec<Notice> {
    let mut notices = below_floors(policies, resolver, planned);
    notices.extend(long_in_kernel(policies, resolver, planned));
    notices
}

fn below_floors(policies: &PolicyTable, resolver: &Resolver, planned: &[Planned]) -> Vec<Notice> {
    let mut notices = Vec::new();
    for (index, target) in resolver.targets().iter() {
        let delay = policies.delay(index);
        let floors_in = |planned: &Planned| {
            if policies.in_helper(index).is_some() && planned.plan.wants_helper() {
                return Some(IN_HELPER);
            }
            let kinds = planned.plan.kinds_of(index, target.kind);
            kinds.map(|kind| resolver.calibration().floors(kind)).reduce(Floors::max)
        };
        let Some(floors) = planned.iter().filter_map(floors_in).reduce(Floors::max) else { continue };
        let line = target.line;
        if delay == Nanos(0) || delay >= floors.cold {
            continue;
        }
        notices.push(if delay < floors.warm {
            Notice::BelowFloor { line, delay, floor: floors.warm }
        } else {
            Notice::BelowColdFloor { line, delay, floor: floors.cold }
        });
    }
    notices
}

fn long_in_kernel(policies: &PolicyTable, resolver: &Resolver, planned: &[Planned]) -> Vec<Notice> {
    let form = resolver.form();
    // In these kernels a delay like that cannot hold up others. We refuse the delay, the helper spins it, or
    // the BPF program lets other threads run during the spin.
    if form.longest_spin().is_some() || form.may_sleep() {
        return Vec::new();
    }
    let in_kernel = |target| {
        let delay = policies.delay(target);
        // For a command we only know whether we may load the helper.
        let may_be_signalled = resolver.signal().is_some();
        let may_be_helpers = resolver.may_inject() && policies.in_helper(target).is_some();
        let any = planned.is_empty()
            && !may_be_helpers
            && policies.engine(delay, form, may_be_signalled) == EngineKind::Bpf;
        any || planned.iter().any(|of| engine(policies, target, &of.plan, resolver) == EngineKind::Bpf)
    };
    let mut notices = Vec::new();
    for (index, target) in resolver.targets().iter() {
        let delay = policies.delay(index);
        if delay > automatic_above(form) && in_kernel(index) {
            notices.push(Notice::LongInKernel { line: target.line, delay });
        }
    }
    notices
}
