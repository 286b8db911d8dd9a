//! The output of `list` as JSON: what we have prepared.

use std::{borrow::Cow, collections::HashMap};

use serde::Serialize;

use super::{Plans, Prepared, bpf::BpfPlans, kmod::KmodPlan, notice::Notice};
use crate::{
    engine::{Dose, EngineKind},
    probe::{
        plan::{Entry, Plan, PlannedFunction, PlannedSite, PythonPlan, Remark},
        site::SiteKind,
    },
    process::Process,
    targets::{Target, TargetIndex, TargetKind},
    units::{Nanos, Pid},
};

/// Name and version of the format. The version changes when readers have to change.
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
    /// The name of the process, or of the program that it runs.
    comm: String,
    /// Why we can select no Python function, if targets name any.
    python_impossible: Option<&'a str>,
    /// Probe sites in the interpreter. Each serves all Python functions.
    interpreter_sites: Vec<Site<'a>>,
    targets: Vec<TargetListing<'a>>,
}

#[derive(Debug, Serialize)]
struct TargetListing<'a> {
    id: &'a str,
    line: usize,
    kind: TargetKind,
    pattern: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    engine: EngineKind,
    delay_ns: Nanos,
    frequency: u64,
    functions: Vec<Function<'a>>,
    /// Why the target selects nothing, or less than expected.
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
    /// The least time that a delayed call takes at this site.
    floor_ns: Nanos,
    /// The least time that a delayed call takes when caches are cold, for example after a sleep or after much
    /// other code.
    cold_floor_ns: Nanos,
    /// The time that a call takes at this site without a delay.
    unselected_ns: Nanos,
    remark: Option<&'a str>,
}

impl<'a> Listing<'a> {
    /// The listing of prepared processes.
    pub fn new(prepared: &'a Prepared) -> Self {
        let processes = match &prepared.plans {
            Plans::Bpf(plans) => {
                let of_process = |(process, plan): &'a (Process, Plan)| {
                    OneProcess { prepared, plans, plan }.process(process)
                };
                plans.processes.iter().map(of_process).collect()
            }
            Plans::Kmod(plan) => vec![of_kmod(prepared, plan)],
        };
        Self { schema: SCHEMA, processes, notices: &prepared.notices }
    }
}

/// A process whose plan is for BPF programs.
#[derive(Clone, Copy)]
struct OneProcess<'a> {
    prepared: &'a Prepared,
    plans: &'a BpfPlans,
    plan: &'a Plan,
}

impl<'a> OneProcess<'a> {
    fn process(self, process: &Process) -> ProcessListing<'a> {
        // Sites by function. Sites of the interpreter belong to no function.
        let mut by_function: HashMap<Option<usize>, Vec<&'a PlannedSite>> = HashMap::new();
        for site in &self.plan.sites {
            by_function.entry(site.function).or_default().push(site);
        }
        let sites = |function| {
            let sites = by_function.get(&function).into_iter().flatten();
            sites.map(|site| self.site(site)).collect::<Vec<_>>()
        };
        let targets = self.prepared.targets.iter();
        ProcessListing {
            pid: process.pid(),
            comm: process.name(),
            python_impossible: match &self.plan.python {
                PythonPlan::Impossible(why) => Some(why),
                PythonPlan::NotAsked | PythonPlan::Source { .. } => None,
            },
            interpreter_sites: sites(None),
            targets: targets.map(|(index, target)| self.target(index, target, &sites)).collect(),
        }
    }

    fn target(
        self,
        index: TargetIndex,
        target: &'a Target,
        sites: &dyn Fn(Option<usize>) -> Vec<Site<'a>>,
    ) -> TargetListing<'a> {
        let policies = &self.prepared.settings.policies;
        let dose = policies.dose(index);
        let selected = self.plan.functions.iter().enumerate();
        let selected = selected.filter(|(_, function)| function.selected.target == index);
        let functions = selected.map(|(at, function)| of_function(function, sites(Some(at)))).collect();
        let engine = self.plans.engine(policies, index, self.plan);
        of_target(target, dose, engine, functions, remarks(&self.plan.remarks, index))
    }

    fn site(self, site: &'a PlannedSite) -> Site<'a> {
        let calibration = self.plans.resolver.calibration();
        let cost = calibration.cost(site.kind);
        Site {
            file: site.file.path().to_string_lossy(),
            offset: site.offset.0,
            instruction: &site.instruction,
            kind: site.kind,
            floor_ns: cost.floor,
            cold_floor_ns: calibration.floors(site.kind).cold,
            unselected_ns: cost.unselected,
            remark: site.remark.as_deref(),
        }
    }
}

/// The listing of a process whose plan is for the kernel module.
fn of_kmod<'a>(prepared: &'a Prepared, plan: &'a KmodPlan) -> ProcessListing<'a> {
    let found = plan.found();
    let targets = prepared.targets.iter().map(|(index, target)| {
        let functions = found.functions.iter().filter(|function| function.selected.target == index);
        let functions = functions.map(|function| Function {
            name: &function.selected.name,
            file: function.selected.file.to_string_lossy(),
            line: None,
            entry: Entry::Symbol,
            aliases: &[],
            sites: Vec::new(),
        });
        let dose = prepared.settings.policies.dose(index);
        let remarks = remarks(&found.remarks, index);
        of_target(target, dose, EngineKind::Kmod, functions.collect(), remarks)
    });
    ProcessListing {
        pid: plan.process().pid(),
        comm: plan.process().name(),
        python_impossible: None,
        interpreter_sites: Vec::new(),
        targets: targets.collect(),
    }
}

fn of_target<'a>(
    target: &'a Target,
    dose: Dose,
    engine: EngineKind,
    functions: Vec<Function<'a>>,
    remarks: Vec<&'a str>,
) -> TargetListing<'a> {
    TargetListing {
        id: &target.id,
        line: target.line,
        kind: target.kind,
        pattern: &target.pattern,
        caller: target.caller_pattern(),
        engine,
        delay_ns: dose.delay,
        frequency: dose.frequency,
        functions,
        remarks,
    }
}

fn remarks(remarks: &[Remark], index: TargetIndex) -> Vec<&str> {
    let of_target = remarks.iter().filter(|remark| remark.target == Some(index));
    of_target.map(|remark| remark.text.as_str()).collect()
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
