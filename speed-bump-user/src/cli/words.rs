//! Texts of notices and headers.

use std::fmt::Write as _;

use super::terminal::Lines;
use crate::{
    engine::{EngineKind, kmod::UPSTREAM, signal::automatic_above},
    policy::PolicyTable,
    prepare::{
        Plans, Prepared,
        bpf::BpfPlans,
        kmod::KmodPlan,
        notice::{Notice, Reason, SelectsNothing},
    },
    probe::cost::{Floors, HELPER_COST, IN_HELPER},
    probe::resolve::Resolver,
    probe::{
        plan::{Plan, PythonPlan},
        site::SiteKind,
    },
    process::Process,
    python::{entry_source::EntrySource, helper::words, version::PythonVersion},
    units::Nanos,
};

/// Prints the notices on standard error.
pub(super) fn tell_notices(notices: &[Notice]) {
    notices.iter().for_each(|of| notice(of).after("speed-bump-ebpf: ").tell());
}

fn notice(notice: &Notice) -> Lines {
    match notice {
        Notice::NoTarget(no_target) => no_target.to_string().into(),
        Notice::Looked { pid, functions } => {
            let inspected = format!("inspected {functions} functions and detached");
            format!("process {pid}: the helper was loaded, {inspected}").into()
        }
        Notice::Seen { pid, text } => format!("process {pid}: {text}").into(),
        Notice::NotLooked { pid, why } => format!("process {pid}: {why}").into(),
        Notice::OtherSession { pid, session } => format!(
            "warning: process {pid}: session {session} is attached to it too; a call that both delay waits \
             for both"
        )
        .into(),
        Notice::Recovered { text } => text.as_str().into(),
        Notice::UpstreamModule => format!("warning: {UPSTREAM}").into(),
        Notice::AttachWouldFail { why } => format!("warning: an attach would fail: {why}").into(),
        Notice::SelectsNothing(nothing) => selects_nothing(nothing).after("warning: "),
        Notice::BelowFloor { line, delay, floor } => format!(
            "warning: line {line}: a delay of {delay} is below what a trap costs at its costliest probe \
             site: a delayed call there loses {floor}. For less on average, delay every Nth call with \
             frequency=N"
        )
        .into(),
        Notice::BelowColdFloor { line, delay, floor } => format!(
            "warning: line {line}: a delay of {delay} is exact only for calls in quick succession: a call \
             after a sleep, or after much other code, loses up to {floor}"
        )
        .into(),
        Notice::NotTimed { text } => format!("warning: {text}").into(),
        Notice::LongInKernel { line, delay } => format!(
            "warning: line {line}: a delay of {delay} spins in the kernel and holds up everything else on \
             that CPU. `--engine signal` spins it in the process"
        )
        .into(),
    }
}

/// The message for a target that selects nothing, with a line for each reason.
pub(super) fn selects_nothing(nothing: &SelectsNothing) -> Lines {
    let SelectsNothing { line, target, processes } = nothing;
    let mut lines = Lines::from(format!("line {line}: `{target}` selects nothing"));
    for (pid, reasons) in processes {
        for reason in reasons {
            let reason = match reason {
                Reason::Found(text) => text.clone(),
                Reason::SelectedBy(line) => {
                    format!("line {line} already selects what it would select")
                }
                Reason::NoCaller { pattern, nearest } if nearest.is_empty() => {
                    format!("no function that is loaded matches `caller={pattern}`")
                }
                Reason::NoCaller { pattern, nearest } => format!(
                    "no function that is loaded matches `caller={pattern}`: similar names are `{}`",
                    nearest.join("`, `")
                ),
                Reason::NoFile { pattern } => format!("it maps no file that matches `{pattern}`"),
                Reason::Jit => {
                    "it runs code that it has compiled itself, outside of any file (JIT: Java, node, \
                                PyPy and others): such functions have no symbols and cannot be targets"
                        .to_owned()
                }
                Reason::Nearest(names) => format!("similar names are `{}`", names.join("`, `")),
            };
            lines.push(format!("  process {pid}: {reason}"));
        }
    }
    lines
}

/// The session's header: a few lines for each process.
pub(super) fn headers(prepared: &Prepared) -> Vec<Lines> {
    let policies = &prepared.settings.policies;
    match &prepared.plans {
        Plans::Bpf(plans) => {
            let processes = plans.processes.iter();
            processes.map(|(process, plan)| header(plans, policies, process, plan)).collect()
        }
        Plans::Kmod(plan) => vec![kmod_header(plan).into()],
    }
}

fn kmod_header(plan: &KmodPlan) -> String {
    let process = plan.process();
    let (pid, comm) = (process.pid(), process.name());
    let functions = counted(plan.found().functions.len(), "function");
    format!(
        "process {pid} ({comm}): {functions}, engine kmod; each call costs a trap on top of its delay, in \
         every process that runs the file"
    )
}

/// The header for one process.
pub(super) fn header(plans: &BpfPlans, policies: &PolicyTable, process: &Process, plan: &Plan) -> Lines {
    let comm = process.name();
    let mut text = format!("process {} ({comm}): ", process.pid());
    // The helper's functions and its site are not known before it is loaded.
    if !plan.functions.is_empty() || !plan.sites.is_empty() {
        let (functions, sites) = (plan.functions.len(), plan.sites.len());
        let _ = write!(text, "{} at {}, ", counted(functions, "function"), counted(sites, "probe site"));
    }
    if plan.wants_helper() {
        text.push_str("Python functions that the helper will find, ");
    }
    let _ = write!(text, "engine {}", engines(plans, policies, plan));
    let calibration = || plans.resolver.calibration();
    let unselected = plan.sites.iter().map(|site| calibration().cost(site.kind).unselected);
    let floors = plan.sites.iter().map(|site| calibration().floors(site.kind)).reduce(Floors::max);
    if let (Some(least), Some(Floors { warm, cold })) = (unselected.min(), floors) {
        let _ = write!(
            text,
            "; a call there costs from {least}, the smallest delay is at most {warm}, and {cold} for a call \
             after a sleep"
        );
    }
    let mut lines = Lines::from(text);
    match &plan.python {
        PythonPlan::NotAsked => {}
        PythonPlan::Source { source, version, stub } => {
            let at_evaluator = plan
                .sites
                .iter()
                .filter(|site| site.function.is_none())
                .map(|site| plans.resolver.calibration().cost(site.kind).unselected)
                .max()
                .unwrap_or_default();
            let in_helper = policies.choice().delays_in_helper();
            let costs = python_costs(*source, *version, *stub, in_helper, at_evaluator, &plans.resolver);
            lines.push(format!("  {costs}"));
        }
        PythonPlan::Impossible(why) if plans.python_in_children => {
            lines.push(format!("  only Python functions of its descendants are covered, not its own: {why}"));
        }
        PythonPlan::Impossible(why) => lines.push(format!("  Python targets select nothing: {why}")),
    }
    lines
}

/// Names the engines for a process.
fn engines(plans: &BpfPlans, policies: &PolicyTable, plan: &Plan) -> String {
    let targets = plans.resolver.targets().iter();
    let kinds: Vec<EngineKind> = targets.map(|(index, _)| plans.engine(policies, index, plan)).collect();
    let has = |kind| kinds.contains(&kind);
    let above = automatic_above(plans.resolver.form());
    let of_traps = match (has(EngineKind::Bpf), has(EngineKind::Signal)) {
        (true, true) => Some(format!("bpf, and signal above {above}")),
        (false, true) => Some(EngineKind::Signal.to_string()),
        (true, false) => Some(EngineKind::Bpf.to_string()),
        (false, false) => None,
    };
    match (has(EngineKind::Helper), of_traps) {
        (true, Some(others)) => format!("helper for Python functions, else {others}"),
        (true, None) => EngineKind::Helper.to_string(),
        (false, others) => others.unwrap_or_else(|| EngineKind::Bpf.to_string()),
    }
}

/// `1 function`, `2 functions`.
pub(super) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A sentence about what calls of Python functions will cost.
fn python_costs(
    source: EntrySource,
    version: PythonVersion,
    stub: Option<SiteKind>,
    in_helper: bool,
    at_evaluator: Nanos,
    resolver: &Resolver,
) -> String {
    let names = match source {
        EntrySource::Helper if in_helper => {
            let cold = IN_HELPER.cold;
            let (floor, unselected) = (IN_HELPER.warm, words::unselected_call(version));
            return format!(
                "Python calls through the helper, if it can be loaded, which delays by itself: a call of a \
                 matching function costs about {floor}, which is the smallest delay, and up to {cold} after \
                 a sleep; a call of any other Python function costs {unselected}"
            );
        }
        EntrySource::Helper => {
            let calibration = resolver.calibration();
            let cost = calibration.through_helper(stub.unwrap_or_else(|| calibration.stub()));
            let (calls, smallest) = (cost.unselected, cost.floor);
            let cold = calibration.floors(cost.kind).cold;
            let unselected = words::unselected_call(version);
            return format!(
                "Python calls through the helper, if it can be loaded: a call of a matching function costs \
                 about {calls}, the smallest delay is about {smallest} (measured here, and {HELPER_COST} for \
                 the helper; up to {cold} after a sleep); a call of any other Python function costs \
                 {unselected}"
            );
        }
        EntrySource::PerfMap => "",
        EntrySource::Usdt => ", and about as much again to read its names",
    };
    format!(
        "Python calls through {source}: each call of any Python function costs about {at_evaluator}{names}, \
         matched or not"
    )
}
