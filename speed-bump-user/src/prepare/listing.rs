//! What was prepared, as JSON: what `list` shows.

use std::{borrow::Cow, collections::HashMap};

use serde::Serialize;

use super::{Prepared, notice::Notice};
use crate::{
    engine::EngineKind,
    probe::{
        plan::{Entry, Plan, PlannedFunction, PlannedSite, PythonPlan},
        site::SiteKind,
    },
    process::Process,
    targets::{Target, TargetIndex, TargetKind},
    units::{Nanos, Pid},
};

/// Name and version of the form; a change that readers would notice gets another number.
pub const SCHEMA: &str = "speed-bump/list/1";

/// What targets select, and where the probes would go.
#[derive(Debug, Serialize)]
pub struct Listing<'a> {
    schema: &'static str,
    processes: Vec<ProcessListing<'a>>,
    notices: &'a [Notice],
}

#[derive(Debug, Serialize)]
struct ProcessListing<'a> {
    pid: Pid,
    /// What the process calls itself.
    comm: String,
    /// Why no Python function can be selected, where some are asked for.
    python_impossible: Option<&'a str>,
    /// Probe sites of the interpreter, which stand for all Python functions.
    interpreter_sites: Vec<Site<'a>>,
    targets: Vec<TargetListing<'a>>,
}

#[derive(Debug, Serialize)]
struct TargetListing<'a> {
    id: &'a str,
    line: usize,
    kind: TargetKind,
    pattern: &'a str,
    engine: EngineKind,
    delay_ns: Nanos,
    frequency: u64,
    functions: Vec<Function<'a>>,
    /// Why it selects nothing, or less than it seems to.
    remarks: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct Function<'a> {
    name: &'a str,
    file: Cow<'a, str>,
    line: Option<u32>,
    entry: Entry,
    aliases: &'a [String],
    sites: Vec<Site<'a>>,
}

#[derive(Debug, Serialize)]
struct Site<'a> {
    file: Cow<'a, str>,
    offset: u64,
    instruction: &'a str,
    kind: SiteKind,
    /// The least that a delayed call takes there.
    floor_ns: Nanos,
    /// What a call that is not delayed takes there.
    unselected_ns: Nanos,
    remark: Option<&'a str>,
}

impl<'a> Listing<'a> {
    /// All that is known of these processes.
    pub fn of(prepared: &'a Prepared) -> Self {
        let processes = prepared.processes.iter().map(|(process, plan)| of_process(prepared, process, plan));
        Self { schema: SCHEMA, processes: processes.collect(), notices: &prepared.notices }
    }
}

fn of_process<'a>(prepared: &'a Prepared, process: &Process, plan: &'a Plan) -> ProcessListing<'a> {
    // By function; those of the interpreter have none.
    let mut sites: HashMap<Option<usize>, Vec<&PlannedSite>> = HashMap::new();
    for site in &plan.sites {
        sites.entry(site.function).or_default().push(site);
    }
    let of = |function| {
        let sites = sites.get(&function).into_iter().flatten();
        sites.map(|site| of_site(prepared, site)).collect::<Vec<_>>()
    };
    let targets = prepared.resolver.targets().iter();
    ProcessListing {
        pid: process.pid(),
        comm: process.comm().unwrap_or_default(),
        python_impossible: match &plan.python {
            PythonPlan::Impossible(why) => Some(why),
            PythonPlan::NotAsked | PythonPlan::Source { .. } => None,
        },
        interpreter_sites: of(None),
        targets: targets.map(|(index, target)| of_target(prepared, plan, index, target, &of)).collect(),
    }
}

fn of_target<'a>(
    prepared: &'a Prepared,
    plan: &'a Plan,
    index: TargetIndex,
    target: &'a Target,
    sites: &dyn Fn(Option<usize>) -> Vec<Site<'a>>,
) -> TargetListing<'a> {
    let dose = prepared.settings.policies.dose(index);
    let selected = plan.functions.iter().enumerate();
    let selected = selected.filter(|(_, function)| function.selected.target == index);
    let remarks = plan.remarks.iter().filter(|remark| remark.target == Some(index));
    TargetListing {
        id: &target.id,
        line: target.line,
        kind: target.kind,
        pattern: &target.pattern,
        engine: prepared.engine(dose.delay, plan),
        delay_ns: dose.delay,
        frequency: dose.frequency,
        functions: selected.map(|(at, function)| of_function(function, sites(Some(at)))).collect(),
        remarks: remarks.map(|remark| remark.text.as_str()).collect(),
    }
}

fn of_function<'a>(function: &'a PlannedFunction, sites: Vec<Site<'a>>) -> Function<'a> {
    Function {
        name: &function.selected.name,
        file: function.selected.file.to_string_lossy(),
        line: function.selected.line,
        entry: function.entry,
        aliases: &function.aliases,
        sites,
    }
}

fn of_site<'a>(prepared: &'a Prepared, site: &'a PlannedSite) -> Site<'a> {
    let cost = prepared.resolver.calibration().cost(site.kind);
    Site {
        file: site.file.path().to_string_lossy(),
        offset: site.offset.0,
        instruction: &site.instruction,
        kind: site.kind,
        floor_ns: cost.floor,
        unselected_ns: cost.unselected,
        remark: site.remark.as_deref(),
    }
}
