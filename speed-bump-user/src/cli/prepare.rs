//! What attaching and listing have in common: from flags to processes with their plans.

use std::{fmt::Write as _, fs::File, num::NonZeroU64, path::Path, sync::Arc};

use anyhow::anyhow;

use super::{
    args::{ProcessArgs, SelectArgs},
    engine,
    environment::Environment,
    exit::{Failure, NOTHING_MATCHED, SYSTEM, USAGE},
    terminal::Lines,
};
use crate::{
    calibrate::{Calibration, HELPER_COST},
    elf::ElfFile,
    kernel::{AttachBy, KernelFacts, Privileges},
    policy::{Dose, PolicyTable},
    presence::{
        Terms,
        survey::{loaded, survey},
    },
    probe::{
        plan::{Plan, PlannedFunction, PythonPlan, SelectedFunction},
        resolve::Resolver,
        site::SiteKind,
    },
    process::Process,
    python::{entry_source::EntrySource, helper::words, version::PythonVersion},
    targets::{Reading, TargetIndex, TargetKind, Targets, TargetsError},
    units::Nanos,
};

/// The delay of a trigger where neither flag nor environment says one; upstream's.
const DEFAULT_DELAY: Nanos = Nanos(1_000);

/// Everything that is known before anything is attached.
pub struct Prepared {
    /// Resolves further processes: children that exec.
    pub resolver: Resolver,
    /// The processes, each with what is selected in it.
    pub processes: Vec<(Process, Plan)>,
    /// Which delays, and who spins them.
    pub policies: PolicyTable,
    /// What to tell: warnings.
    pub notices: Vec<Lines>,
}

/// What is prepared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Attaching, which will bring helpers in where plans say so.
    Attach,
    /// Listing: helpers are brought in, look at what is loaded, and leave.
    List,
}

/// Opens the processes, reads the targets, calibrates and resolves. Attaches nothing.
pub fn prepare(
    named: &ProcessArgs,
    select: &SelectArgs,
    environment: &Environment,
    default: Dose,
    purpose: Purpose,
) -> Result<Prepared, Failure> {
    let processes = open_processes(named)?;
    let is_elf = |path: &str| {
        processes.iter().any(|process| {
            let file = process.open_file(Path::new(path));
            file.is_ok_and(|file| ElfFile::from_file(file, path).is_ok())
        })
    };
    let (resolver, policies, mut notices) = prepare_resolver(select, environment, default, &is_elf)?;
    let mut planned = Vec::with_capacity(processes.len());
    for process in processes {
        let plan = resolver.plan(&process)?;
        let mut process = Planned { process, plan, loaded: Loaded::new() };
        if purpose == Purpose::List && process.plan.wants_helper() {
            notices.extend(look_inside(select, &resolver, &mut process)?.into_iter().map(Lines::from));
        }
        planned.push(process);
    }
    notices.extend(unmatched(named.strict, &resolver, &planned, purpose)?);
    notices.extend(delay_notices(&policies, &resolver, &planned));
    let processes = planned.into_iter().map(|planned| (planned.process, planned.plan)).collect();
    Ok(Prepared { resolver, processes, policies, notices })
}

/// The same for a command that is yet to be started: what can be known without a process, and what to tell.
pub fn prepare_for_command(
    select: &SelectArgs,
    environment: &Environment,
    default: Dose,
) -> Result<(Resolver, PolicyTable, Vec<Lines>), Failure> {
    // The command begins in our own root directory.
    let is_elf = |path: &str| File::open(path).is_ok_and(|file| ElfFile::from_file(file, path).is_ok());
    let (resolver, policies, mut notices) = prepare_resolver(select, environment, default, &is_elf)?;
    notices.extend(delay_notices(&policies, &resolver, &[]));
    Ok((resolver, policies, notices))
}

fn prepare_resolver(
    select: &SelectArgs,
    environment: &Environment,
    default: Dose,
    is_elf: &dyn Fn(&str) -> bool,
) -> Result<(Resolver, PolicyTable, Vec<Lines>), Failure> {
    let targets = Arc::new(read_targets(select, environment, is_elf)?);
    let kernel = check_privileges()?;
    let mut calibration = Calibration::measure(&kernel)?;
    let policies = PolicyTable::new(&targets, default, select.engine);
    engine::prepare(select, &targets, &policies, &mut calibration)?;
    let calibration = Arc::new(calibration);
    let notices = targets.no_target().iter().map(|told| told.to_string().into()).collect();
    Ok((Resolver::new(targets, calibration, select.entry, !select.no_inject), policies, notices))
}

/// Names of Python functions that a process has loaded: file and qualified name.
type Loaded = Vec<(String, String)>;

/// A process with what is selected in it.
pub(super) struct Planned {
    process: Process,
    pub(super) plan: Plan,
    /// What targets that select nothing could have meant; empty where nobody looked.
    loaded: Loaded,
}

/// Brings the helper into a process for a look at what is loaded, and says so. Where a target selects
/// nothing, also says what there is to choose from.
fn look_inside(
    select: &SelectArgs,
    resolver: &Resolver,
    planned: &mut Planned,
) -> Result<Vec<String>, Failure> {
    let Planned { process, plan, loaded: names } = planned;
    let pid = process.pid();
    let program = plan.program.clone().map_or_else(|| process.program(), Ok)?;
    let interpreters = resolver.interpreter_files(process)?;
    let looked = Terms::new(resolver, select.inject_timeout)
        .and_then(|terms| Ok((survey(process, &program, &interpreters, &terms)?, terms)));
    let (found, terms) = match looked {
        Ok(looked) => looked,
        Err(error) => {
            let error = match error.into_other_program() {
                Ok(error) => return Err(error.into()),
                Err(error) => error,
            };
            plan.python = PythonPlan::NotAsked;
            plan.add(resolver.plan_without_helper(process, &error.to_string())?);
            return Ok(vec![format!("process {pid}: {error}")]);
        }
    };
    let mut notices = vec![format!(
        "process {pid}: the helper was loaded into it, looked at {} functions, and has left",
        found.looked_at
    )];
    notices.extend(found.notices.iter().map(|notice| format!("process {pid}: {notice}")));
    let mut found_inside = Vec::new();
    for function in found.functions {
        let target = TargetIndex(function.target);
        // What it says is checked: the process could say anything.
        if resolver.targets().get(target).is_none_or(|target| target.kind != TargetKind::Python) {
            continue;
        }
        let selection = resolver.targets().python_in(&function.file).select(&function.name);
        found_inside.push(PlannedFunction {
            selected: SelectedFunction {
                target,
                name: function.name,
                file: function.file.into(),
                line: Some(function.line).filter(|line| line.cast_signed() > 0),
            },
            aliases: Vec::new(),
            entry: EntrySource::Helper.into(),
            shadowed: selection.shadowed,
        });
    }
    found_inside.sort_by(|a, b| a.selected.cmp(&b.selected));
    // After the others: sites name their functions by position.
    plan.functions.extend(found_inside);
    let mut python = resolver.targets().iter().filter(|(_, target)| target.kind == TargetKind::Python);
    if python.any(|(index, _)| !plan.would_select(index)) {
        // Without names it is told all the same that something selects nothing.
        *names = loaded(process, &program, &interpreters, &terms).unwrap_or_default();
    }
    Ok(notices)
}

/// What a target gets that leaves it open; `frequency` is the flag's.
pub fn default_dose(select: &SelectArgs, frequency: Option<NonZeroU64>, environment: &Environment) -> Dose {
    Dose {
        delay: select.delay.or(environment.delay).unwrap_or(DEFAULT_DELAY),
        frequency: frequency.or(environment.frequency).map_or(1, u64::from),
    }
}

/// Refuses to go on without what every attach needs. Returns what is known of the kernel.
pub fn check_privileges() -> Result<KernelFacts, Failure> {
    let privileges = Privileges::read().map_err(|error| Failure::new(SYSTEM, error))?;
    let facts = KernelFacts::read();
    let by = if facts.has_uprobe_multi_pid() { AttachBy::UprobeMulti } else { AttachBy::PerfEvent };
    privileges.require(by).map_err(|error| Failure::new(SYSTEM, error))?;
    facts.require().map_err(|error| Failure::new(SYSTEM, error))?;
    Ok(facts)
}

pub(super) fn open_processes(named: &ProcessArgs) -> Result<Vec<Process>, Failure> {
    let mut pids = named.pids.clone();
    pids.sort_unstable();
    pids.dedup();
    // In the order of the command line: the first is the report's `pid`.
    pids.sort_by_key(|pid| named.pids.iter().position(|named| named == pid));
    pids.into_iter().map(|pid| Process::open(pid).map_err(Failure::from)).collect()
}

pub(super) fn read_targets(
    select: &SelectArgs,
    environment: &Environment,
    is_elf: &dyn Fn(&str) -> bool,
) -> Result<Targets, Failure> {
    let reading = Reading { is_elf, allow_empty: select.allow_empty };
    let file = || {
        select.targets.as_ref().or(environment.targets.as_ref()).ok_or_else(|| {
            let text = "no targets: give some with --target PATTERN, or name a targets file with --targets \
                        FILE or SPEED_BUMP_TARGETS; `--help` shows what goes into it";
            Failure::new(USAGE, anyhow!(text))
        })
    };
    let targets = if select.lines.is_empty() {
        Targets::load(file()?, reading)
    } else {
        Targets::parse("--target", select.lines.join("\n").as_bytes(), reading)
    };
    targets.map_err(|error| match error {
        TargetsError::Lines(errors) => Failure::new(USAGE, Lines::from_iter(errors.lines())),
        error => Failure::new(USAGE, error),
    })
}

/// A line for each target that selects nothing; under `--strict` a failure.
fn unmatched(
    strict: bool,
    resolver: &Resolver,
    planned: &[Planned],
    purpose: Purpose,
) -> Result<Vec<Lines>, Failure> {
    let is_known = |plan: &Plan| match plan.python {
        PythonPlan::Source { source: EntrySource::Helper, .. } => purpose == Purpose::List,
        PythonPlan::Source { source, .. } => source.lists_functions(),
        PythonPlan::NotAsked | PythonPlan::Impossible(_) => true,
    };
    let mut notices = Vec::new();
    for (index, target) in resolver.targets().iter() {
        let selected = planned.iter().any(|planned| planned.plan.selects(index));
        // Without a list of its functions, what a process will call is not known before it does.
        let unknown =
            target.kind == TargetKind::Python && planned.iter().any(|planned| !is_known(&planned.plan));
        // A session that cannot reach what it is to slow does not start, and says why.
        let says_so = purpose == Purpose::Attach && planned.iter().any(|of| of.plan.is_out_of_reach(index));
        if !selected && !unknown && !says_so {
            notices.push(why_nothing(index, resolver, planned));
        }
    }
    if strict && !notices.is_empty() {
        let mut all = Lines::default();
        all.extend(notices);
        return Err(Failure::new(NOTHING_MATCHED, all));
    }
    let python_alone = resolver.targets().iter().all(|(_, target)| target.kind == TargetKind::Python);
    let impossible = |plan: &Plan| match &plan.python {
        PythonPlan::Impossible(why) => Some(why.clone()),
        PythonPlan::NotAsked | PythonPlan::Source { .. } => None,
    };
    if python_alone
        && !planned.is_empty()
        && planned.iter().all(|planned| impossible(&planned.plan).is_some())
    {
        let why = planned.iter().find_map(|Planned { process, plan, .. }| {
            let mut lines = Lines::from(format!("process {}: {}", process.pid(), impossible(plan)?));
            for remark in plan.remarks_on_process().take(3) {
                lines.push(format!("  {remark}"));
            }
            Some(lines)
        });
        return Err(Failure::new(SYSTEM, why.unwrap_or_default()));
    }
    Ok(notices.into_iter().map(|notice| notice.after("warning: ")).collect())
}

fn why_nothing(index: TargetIndex, resolver: &Resolver, planned: &[Planned]) -> Lines {
    let Some(target) = resolver.targets().get(index) else { return Lines::default() };
    let mut lines = Lines::from(format!("line {}: `{}` selects nothing", target.line, target.text));
    for Planned { process, plan, loaded } in planned {
        let mut reasons: Vec<&str> = plan
            .remarks
            .iter()
            .filter(|remark| remark.target == Some(index))
            .map(|remark| remark.text.as_str())
            .collect();
        if target.kind == TargetKind::Python
            && let PythonPlan::Impossible(why) = &plan.python
        {
            reasons.push(why);
        }
        if target.kind == TargetKind::Python {
            reasons.extend(plan.remarks_on_process());
        }
        let first = plan.functions.iter().find(|function| function.shadowed.contains(&index));
        let first = first.and_then(|function| resolver.targets().get(function.selected.target));
        let yields =
            first.map(|first| format!("what it would select is selected by line {} already", first.line));
        reasons.extend(yields.as_deref());
        for reason in reasons.iter().take(3) {
            lines.push(format!("  process {}: {reason}", process.pid()));
        }
        if reasons.is_empty() {
            let nearest = resolver.nearest(process, index, loaded);
            if !nearest.is_empty() {
                lines.push(format!("  process {}: nearest are {}", process.pid(), nearest.join(", ")));
            }
        }
    }
    lines
}

/// What there is to say about the delays of targets.
fn delay_notices(policies: &PolicyTable, resolver: &Resolver, planned: &[Planned]) -> Vec<Lines> {
    let unusual = unusual_delays(policies, resolver, planned);
    unusual.into_iter().chain(engine::long_delays(policies, resolver, planned)).map(Lines::from).collect()
}

/// A line for each target whose delay is below what can be delivered at its sites.
fn unusual_delays(policies: &PolicyTable, resolver: &Resolver, planned: &[Planned]) -> Vec<String> {
    let mut notices = Vec::new();
    for (index, target) in resolver.targets().iter() {
        let delay = policies.delay(index);
        let floor = planned
            .iter()
            .flat_map(|planned| planned.plan.kinds_of(index, target.kind))
            .map(|kind| resolver.calibration().cost(kind).floor)
            .max();
        if let Some(floor) = floor.filter(|floor| delay < *floor && delay > Nanos(0)) {
            notices.push(format!(
                "warning: line {}: a delay of {delay} is below the floor of {floor} at its costliest probe \
                 site; a trigger there takes {floor} (for less on average, delay every Nth call with \
                 frequency=N)",
                target.line
            ));
        }
    }
    notices
}

/// What the session is about, in a few lines.
pub fn header(process: &Process, plan: &Plan, calibration: &Calibration, engine: &str) -> Lines {
    let comm = process.comm().unwrap_or_default();
    let mut text = format!("process {} ({comm}): ", process.pid());
    // The helper's functions and its site show only once it is in.
    if !plan.functions.is_empty() || !plan.sites.is_empty() {
        let (functions, sites) = (plan.functions.len(), plan.sites.len());
        let _ = write!(text, "{} at {}, ", counted(functions, "function"), counted(sites, "probe site"));
    }
    let _ = write!(text, "engine {engine}");
    let kinds: Vec<_> = plan.sites.iter().map(|site| calibration.cost(site.kind)).collect();
    if let (Some(least), Some(most)) =
        (kinds.iter().map(|cost| cost.unselected).min(), kinds.iter().map(|cost| cost.floor).max())
    {
        let _ = write!(text, "; a call there costs from {least}, the smallest delay is at most {most}");
    }
    let mut lines = Lines::from(text);
    match &plan.python {
        PythonPlan::NotAsked => {}
        PythonPlan::Source { source, version, stub } => {
            let at_evaluator = plan
                .sites
                .iter()
                .filter(|site| site.function.is_none())
                .map(|site| calibration.cost(site.kind).unselected)
                .max()
                .unwrap_or_default();
            let costs = python_costs(*source, *version, *stub, at_evaluator, calibration);
            lines.push(format!("  {costs}"));
        }
        PythonPlan::Impossible(why) => lines.push(format!("  Python targets select nothing: {why}")),
    }
    lines
}

/// `1 function`, `2 functions`.
pub(super) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// What the calls of Python functions will cost, in a sentence.
fn python_costs(
    source: EntrySource,
    version: PythonVersion,
    stub: Option<SiteKind>,
    at_evaluator: Nanos,
    calibration: &Calibration,
) -> String {
    let names = match source {
        EntrySource::Helper => {
            let cost = calibration.through_helper(stub.unwrap_or_else(|| calibration.stub()));
            let (calls, smallest) = (cost.unselected, cost.floor);
            let unselected = words::unselected_call(version);
            return format!(
                "Python calls through the helper, if it can be loaded: a call of a matching function costs \
                 about {calls}, the smallest delay is about {smallest} (measured here, and {HELPER_COST} for \
                 the helper); a call of any other Python function costs {unselected}"
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
