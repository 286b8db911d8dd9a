//! How much room a session gets in the engine's maps. The plans at the session's beginning decide this.

use speed_bump_abi::FunctionStats;

use crate::{
    bounds::NAMES_OF_SESSION,
    engine::bpf::{Capacity, histograms, processors},
    probe::{
        plan::{Plan, PlannedSite},
        resolve::Resolver,
    },
    process::Process,
    python::helper::Room,
    session::{functions::bytes_of, settings::Settings},
    targets::TargetKind,
};

/// Room for functions that appear after the attach, in addition to twice the functions known at the attach.
const LATE_FUNCTIONS: u32 = 8_192;
/// Room for late functions with delays. Each of them needs a histogram.
const LATE_DELAYED: u32 = 256;
/// Room for late functions with delays if targets name Python functions. We may learn of these only when they
/// are called.
const LATE_DELAYED_PYTHON: u32 = 1_024;
/// Room for probe sites that appear after the attach, in programs that children execute.
const LATE_SITES: u32 = 16_384;
/// Room for functions with targets for some callers alone that appear after the attach.
const LATE_CALLED: u32 = 1_024;
/// The most kernel memory for the counters of later children's helpers, in bytes.
const COUNTERS_BYTES: usize = 64 << 20;
/// Room for the functions of all helpers that count by themselves.
pub(super) const HELPERS_FUNCTIONS: u32 = 4 << 20;
/// Room for trampolines that appear after the attach.
const LATE_TRAMPOLINES: u32 = 262_144;
/// Additional room for the functions of a command, whose first program is not known yet.
const COMMAND_FUNCTIONS: u32 = 4 * LATE_FUNCTIONS;

/// Room for these processes and their children.
pub(super) fn of_processes(resolver: &Resolver, roots: &[(Process, Plan)], settings: &Settings) -> Capacity {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let functions: u32 = roots.iter().map(|(_, plan)| count(plan.functions.len())).sum();
    let sites: u32 = roots.iter().map(|(_, plan)| count(plan.probes())).sum();
    let of_callers = |site: &&PlannedSite| site.caller.is_some();
    let called = count(roots.iter().flat_map(|(_, plan)| &plan.sites).filter(of_callers).count());
    let asks_python = resolver.targets().has_kind(TargetKind::Python);
    let by_programs = !settings.policies.choice().delays_in_helper();
    let helpers = count(roots.iter().filter(|(_, plan)| by_programs && plan.wants_helper()).count());
    let named = helpers.saturating_mul(Room::NAMED_OF_PROGRAMS.functions);
    let of_children =
        if by_programs && resolver.may_inject() && settings.children { late_helpers(named) } else { 0 };
    let late_delayed = if asks_python { LATE_DELAYED_PYTHON } else { LATE_DELAYED };
    Capacity {
        policies: settings.policies.capacity(),
        histograms: histograms(functions.saturating_add(late_delayed), resolver.form()),
        sites: sites.saturating_add(LATE_SITES),
        functions: functions
            .saturating_mul(2)
            .saturating_add(LATE_FUNCTIONS)
            .saturating_add(named)
            .saturating_add(of_children),
        times: resolver.times_calls(),
        bound: settings.bound.is_some(),
        called: called.saturating_mul(2).saturating_add(LATE_CALLED),
        trampolines: if asks_python { LATE_TRAMPOLINES } else { 1 },
        python_usdt: asks_python,
    }
}

/// Room for a command that has not been started.
pub(super) fn of_command(resolver: &Resolver, settings: &Settings) -> Capacity {
    let capacity = of_processes(resolver, &[], settings);
    let named = if resolver.may_inject() { Room::NAMED_OF_PROGRAMS.functions } else { 0 };
    let functions = capacity.functions.saturating_add(COMMAND_FUNCTIONS).saturating_add(named);
    Capacity { functions, ..capacity }
}

/// Room for the names of functions, in bytes: the names in the plans of the processes, the same room for
/// their children, and room for functions that appear later.
pub(super) fn room_for_names(roots: &[(Process, Plan)]) -> usize {
    let planned = roots.iter().flat_map(|(_, plan)| &plan.functions);
    let planned: usize = planned.map(|function| bytes_of(&function.selected)).sum();
    planned.saturating_mul(2).saturating_add(NAMES_OF_SESSION)
}

/// Room for the functions of helpers in children. There is room for 64 children, or for fewer if the counters
/// would exceed the bounds. The counters exist for each CPU.
fn late_helpers(named: u32) -> u32 {
    let affordable = COUNTERS_BYTES / (processors() as usize * size_of::<FunctionStats>());
    let rest = u32::try_from(affordable).unwrap_or(u32::MAX).saturating_sub(named);
    rest.clamp(4 * Room::CHILD.functions, 64 * Room::CHILD.functions)
}
