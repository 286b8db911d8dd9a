//! `list`: what an attach would do, without doing it.

use std::{collections::HashMap, process::ExitCode};

use super::{
    args::ListArgs,
    environment::Environment,
    exit::{Failure, SYSTEM, USAGE},
    request,
    terminal::{Lines, print, print_as_is},
    words::{counted, header, headers, tell_notices},
};
use crate::{
    demangle::for_people,
    policy::PolicyTable,
    prepare::{Plans, Prepared, Purpose, Request, bpf::BpfPlans, kmod::KmodPlan, listing::Listing},
    printable::printable_json,
    probe::cost::CostTable,
    probe::{
        plan::{Plan, PlannedFunction, PlannedSite, PythonPlan},
        site::SiteKind,
    },
    process::Process,
    targets::{Target, TargetIndex, TargetKind, exact::plain_name},
};

/// Functions shown for each target without `--all`.
const SHOWN: usize = 10;

/// Resolves targets and prints what they select.
pub fn run(arguments: &ListArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let request = Request {
        strict: arguments.processes.strict,
        ..request::selection(&arguments.select, &environment)?
    };
    let prepared = Prepared::of_processes(&arguments.processes.pids, &request, Purpose::List)?;
    if arguments.json {
        let text = serde_json::to_string_pretty(&Listing::new(&prepared));
        print_as_is(&printable_json(&text.map_err(|error| Failure::new(SYSTEM, error))?));
        return Ok(ExitCode::SUCCESS);
    }
    let shown = if arguments.all { usize::MAX } else { SHOWN };
    match &prepared.plans {
        Plans::Bpf(plans) => print_plans(&prepared, plans, shown),
        Plans::Kmod(plan) => print_kmod(&prepared, plan, shown),
    }
    tell_notices(&prepared.notices);
    Ok(ExitCode::SUCCESS)
}

fn print_plans(prepared: &Prepared, plans: &BpfPlans, shown: usize) {
    let policies = &prepared.settings.policies;
    for (process, plan) in &plans.processes {
        header(plans, policies, process, plan).print();
        // The interpreter's sites serve all Python functions.
        for site in plan.sites.iter().filter(|site| site.function.is_none()) {
            print_site(site, plans.resolver.calibration());
        }
        for (index, target) in prepared.targets.iter() {
            TargetPrinter { process, plan, shown, plans, policies }.print(index, target);
        }
    }
}

/// Prints what an attach would write to the kernel module.
fn print_kmod(prepared: &Prepared, plan: &KmodPlan, shown: usize) {
    let (pid, found) = (plan.process().pid(), plan.found());
    headers(prepared).iter().for_each(Lines::print);
    for (index, target) in prepared.targets.iter() {
        let delay = prepared.settings.policies.delay(index);
        let functions = found.functions.iter().filter(|function| function.selected.target == index);
        let functions: Vec<_> = functions.collect();
        print("");
        print(format_args!("line {}: {}", target.line, target.text));
        let selected = counted(functions.len(), "function");
        print(format_args!(
            "  read as {}; engine kmod, delay {delay}; selects {selected} in process {pid}",
            target.kind
        ));
        for function in functions.iter().take(shown) {
            let path = function.path.display();
            print(format_args!("  +{path}:{} {} pid={pid}", function.symbol, delay.0));
        }
        print_rest(functions.len(), shown);
        for remark in found.remarks.iter().filter(|remark| remark.target == Some(index)) {
            print(format_args!("  {}", remark.text));
        }
    }
}

fn print_rest(selected: usize, shown: usize) {
    if selected > shown {
        print(format_args!("  … {} more (--all shows them)", selected - shown));
    }
}

struct TargetPrinter<'a> {
    process: &'a Process,
    plan: &'a Plan,
    shown: usize,
    plans: &'a BpfPlans,
    policies: &'a PolicyTable,
}

impl TargetPrinter<'_> {
    fn print(&self, index: TargetIndex, target: &Target) {
        let delay = self.policies.delay(index);
        print("");
        print(format_args!("line {}: {}", target.line, target.text));
        let selected: Vec<(usize, &PlannedFunction)> = self
            .plan
            .functions
            .iter()
            .enumerate()
            .filter(|(_, function)| function.selected.target == index)
            .collect();
        print(format_args!(
            "  read as {}; engine {}, delay {delay}; selects {} in process {}",
            target.kind,
            self.plans.engine(self.policies, index, self.plan),
            counted(selected.len(), "function"),
            self.process.pid()
        ));
        let mut sites: HashMap<usize, Vec<&PlannedSite>> = HashMap::new();
        for site in &self.plan.sites {
            if let Some(function) = site.function {
                sites.entry(function).or_default().push(site);
            }
        }
        for (position, function) in selected.iter().take(self.shown) {
            self.print_function(function, target.kind);
            for site in sites.get(position).into_iter().flatten() {
                print_site(site, self.plans.resolver.calibration());
            }
        }
        print_rest(selected.len(), self.shown);
        if selected.is_empty()
            && target.kind == TargetKind::Python
            && let PythonPlan::Impossible(why) = &self.plan.python
        {
            print(format_args!("  {why}"));
        }
        for remark in self.plan.remarks.iter().filter(|remark| remark.target == Some(index)) {
            print(format_args!("  {}", remark.text));
        }
    }

    fn print_function(&self, function: &PlannedFunction, kind: TargetKind) {
        let selected = &function.selected;
        let line = selected.line.map(|line| format!(":{line}")).unwrap_or_default();
        let demangled = (kind == TargetKind::Native).then(|| for_people(&selected.name)).flatten();
        let shown = demangled.as_deref().unwrap_or(&selected.name);
        let file = selected.file.display();
        print(format_args!("  {shown} ({file}{line}), entry {}", function.entry));
        print_written(kind, shown);
        let symbol = demangled.is_some().then_some(selected.name.as_str());
        let aliases = function.aliases.iter().map(String::as_str).filter(|alias| *alias != shown);
        // One name a line, because names may contain commas.
        for other in symbol.into_iter().chain(aliases) {
            print(format_args!("    also called {other}"));
            print_written(kind, other);
        }
        for line in &function.shadowed {
            print(format_args!("    a later target selects it too, without effect: number {}", line.0 + 1));
        }
    }
}

/// Prints how a targets file writes a function, if that differs from its name.
fn print_written(kind: TargetKind, name: &str) {
    let written = plain_name(kind, name);
    if *written != *name {
        print(format_args!("    written {written} in a targets file"));
    }
}

fn print_site(site: &PlannedSite, calibration: &CostTable) {
    let floors = calibration.floors(site.kind);
    print(format_args!(
        "    site {}+{}: {} ({}), floor {}, {} after a sleep{}{}",
        site.file.path().display(),
        site.offset,
        site.instruction,
        site.kind,
        floors.warm,
        floors.cold,
        if site.kind == SiteKind::SingleStep { ", varying by microseconds from call to call" } else { "" },
        site.semaphore.map(|offset| format!(", semaphore at {offset}")).unwrap_or_default()
    ));
    if let Some(remark) = &site.remark {
        print(format_args!("      {remark}"));
    }
}
