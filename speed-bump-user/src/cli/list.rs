//! `list`: what an attach would do, without doing it.

use std::{collections::HashMap, process::ExitCode};

use super::{
    args::ListArgs,
    environment::Environment,
    exit::{Failure, SYSTEM, USAGE},
    kmod, request,
    terminal::{print, print_as_is},
    words::{header, tell_notices},
};
use crate::{
    calibrate::Calibration,
    prepare::{Prepared, Purpose, Request, listing::Listing},
    printable::printable_json,
    probe::{
        plan::{Plan, PlannedFunction, PlannedSite, PythonPlan},
        site::SiteKind,
    },
    process::Process,
    targets::{Target, TargetIndex},
};

/// Functions shown of each target without `--all`.
pub(super) const SHOWN: usize = 10;

/// Resolves and prints.
pub fn run(arguments: &ListArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    if arguments.select.engine.is_kmod() {
        return kmod::list(arguments, &environment);
    }
    let request = Request {
        strict: arguments.processes.strict,
        ..request::selection(&arguments.select, &environment)?
    };
    let prepared = Prepared::of_processes(&arguments.processes.pids, &request, Purpose::List)?;
    if arguments.json {
        let text = serde_json::to_string_pretty(&Listing::of(&prepared));
        print_as_is(&printable_json(&text.map_err(|error| Failure::new(SYSTEM, error))?));
        return Ok(ExitCode::SUCCESS);
    }
    let calibration = prepared.resolver.calibration();
    let shown = if arguments.all { usize::MAX } else { SHOWN };
    for (process, plan) in &prepared.processes {
        header(&prepared, process, plan).print();
        // Those of the interpreter, which stand for all Python functions.
        for site in plan.sites.iter().filter(|site| site.function.is_none()) {
            print_site(site, calibration);
        }
        for (index, target) in prepared.resolver.targets().iter() {
            Shown { process, plan, calibration, shown, prepared: &prepared }.print(index, target);
        }
    }
    tell_notices(&prepared.notices);
    Ok(ExitCode::SUCCESS)
}

struct Shown<'a> {
    process: &'a Process,
    plan: &'a Plan,
    calibration: &'a Calibration,
    shown: usize,
    prepared: &'a Prepared,
}

impl Shown<'_> {
    fn print(&self, index: TargetIndex, target: &Target) {
        let delay = self.prepared.settings.policies.delay(index);
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
            self.prepared.engine(delay, self.plan),
            match selected.len() {
                1 => "1 function".to_owned(),
                count => format!("{count} functions"),
            },
            self.process.pid()
        ));
        let mut sites: HashMap<usize, Vec<&PlannedSite>> = HashMap::new();
        for site in &self.plan.sites {
            if let Some(function) = site.function {
                sites.entry(function).or_default().push(site);
            }
        }
        for (position, function) in selected.iter().take(self.shown) {
            self.print_function(function);
            for site in sites.get(position).into_iter().flatten() {
                print_site(site, self.calibration);
            }
        }
        if selected.len() > self.shown {
            print(format_args!("  … {} more (--all shows them)", selected.len() - self.shown));
        }
        if selected.is_empty()
            && target.kind == crate::targets::TargetKind::Python
            && let PythonPlan::Impossible(why) = &self.plan.python
        {
            print(format_args!("  {why}"));
        }
        for remark in self.plan.remarks.iter().filter(|remark| remark.target == Some(index)) {
            print(format_args!("  {}", remark.text));
        }
    }

    fn print_function(&self, function: &PlannedFunction) {
        let selected = &function.selected;
        let line = selected.line.map(|line| format!(":{line}")).unwrap_or_default();
        print(format_args!(
            "  {} ({}{line}), entry {}",
            selected.name,
            selected.file.display(),
            function.entry
        ));
        if !function.aliases.is_empty() {
            print(format_args!("    also called {}", function.aliases.join(", ")));
        }
        for line in &function.shadowed {
            print(format_args!(
                "    a later target selects it too, but does not get it: number {}",
                line.0 + 1
            ));
        }
    }
}

fn print_site(site: &PlannedSite, calibration: &Calibration) {
    let cost = calibration.cost(site.kind);
    print(format_args!(
        "    site {}+{}: {} ({}), floor {}{}{}",
        site.file.path().display(),
        site.offset,
        site.instruction,
        site.kind,
        cost.floor,
        if site.kind == SiteKind::SingleStep { ", varying by microseconds from call to call" } else { "" },
        site.semaphore.map(|offset| format!(", semaphore at {offset}")).unwrap_or_default()
    ));
    if let Some(remark) = &site.remark {
        print(format_args!("      {remark}"));
    }
}
