//! `--engine kmod`: the same commands with the kernel module, and without BPF.
//!
//! What the module cannot do is refused here, before anything is touched.

use std::{
    io::{IsTerminal as _, stderr},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context as _, anyhow};

use super::{
    args::{AttachArgs, ListArgs, ProcessArgs, SelectArgs},
    attach::{self, REFRESH, tell_attached, tell_end, tell_report, tell_warning, terminal_size},
    environment::Environment,
    exit::{Failure, NOTHING_MATCHED, SYSTEM, USAGE},
    list::SHOWN,
    outputs::Outputs,
    request,
    signals::StopSignals,
    terminal::{Lines, print, tell},
    words::{counted, selects_nothing},
};
use crate::{
    elf::ElfFile,
    engine::kmod::{FOLDER, KmodError, Module, RECORDS, Records, TARGETS, recover},
    policy::PolicyTable,
    prepare::{
        self, PrepareError, Request,
        notice::{Reason, SelectsNothing},
    },
    probe::resolve::{
        nearest,
        symbols::{NamedFunctions, SymbolResolver},
    },
    process::Process,
    python::entry_source::EntryChoice,
    session::{
        kmod::{KmodSession, KmodSettings, guard, wanted},
        stop::Stop,
    },
    stats::table,
    targets::{TargetKind, Targets},
};

/// Attaches and stays until something ends the session.
pub(super) fn attach(
    arguments: &AttachArgs,
    environment: &Environment,
    outputs: &mut Outputs,
) -> Result<ExitCode, Failure> {
    let (select, flags) = (&arguments.select, &arguments.session);
    let request = request::session(select, flags, environment)?;
    if request.default.frequency != 1 {
        return Err(refusal("delay every Nth call (--frequency, SPEED_BUMP_FREQUENCY), but only every call"));
    }
    if flags.no_children {
        return Err(refusal(
            "leave children out (--no-children): it slows the process with all its descendants",
        ));
    }
    let Prepared { process, resolver, policies, found } = prepare(&arguments.processes, &request)?;
    let module = open(select)?;
    let records = Records::open(Path::new(RECORDS))?;
    check(&module, &process, &policies, &found)?;
    for notice in unselected(arguments.processes.strict, &process, &resolver, &found)? {
        notice.after("speed-bump-ebpf: warning: ").tell();
    }
    let (on_terminal, began) = (stderr().is_terminal(), Instant::now());
    let watched = !flags.quiet;
    if watched {
        tell(header(&process, &found));
    }

    let system = |error: anyhow::Error| Failure::new(SYSTEM, error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot set up the event loop")
        .map_err(system)?;
    // Signals are handled from before the first target on: what is in the module stays there when we die.
    let stop = Stop::default();
    let signals = StopSignals::ask(stop.clone()).context("cannot listen for signals").map_err(system)?;
    let Request { start_after, duration, .. } = request;
    let settings = KmodSettings { policies, start_after, duration };
    let mut told = Vec::new();
    let mut session = KmodSession::start(module, records, resolver, settings, process, &found, |warning| {
        tell_warning(warning);
        told.push(warning.to_owned());
    })?;
    outputs.ready();
    if watched {
        tell_attached(found.functions.len(), began);
    }

    let live = (!flags.quiet && on_terminal).then(attach::live_table);
    let ended = runtime.block_on(session.run(&stop, REFRESH, |session| {
        outputs.tick(|| Some(session.report()));
        if let Some(live) = &live {
            live.set_message(table::render_live(&session.report(), terminal_size()));
        }
    }));
    session.leave();
    if let Some(live) = live {
        live.finish_and_clear();
    }
    let report = session.report();
    tell_report(flags, &report, &told);
    outputs.end(&report)?;
    let ended = ended.context("the event loop failed").map_err(system)?;
    if watched {
        tell_end(ended, &signals, &report);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what an attach would tell the module.
pub(super) fn list(arguments: &ListArgs, environment: &Environment) -> Result<ExitCode, Failure> {
    let select = &arguments.select;
    if arguments.json {
        return Err(refusal("be listed as JSON"));
    }
    let request = request::selection(select, environment)?;
    let Prepared { process, resolver, policies, found } = prepare(&arguments.processes, &request)?;
    let notices = unselected(arguments.processes.strict, &process, &resolver, &found)?;
    print(header(&process, &found));
    let shown = if arguments.all { usize::MAX } else { SHOWN };
    for (index, target) in resolver.targets().iter() {
        let delay = policies.delay(index);
        let functions: Vec<_> =
            found.functions.iter().filter(|function| function.selected.target == index).collect();
        print("");
        print(format_args!("line {}: {}", target.line, target.text));
        print(format_args!(
            "  read as {}; engine kmod, delay {delay}; selects {} in process {}",
            target.kind,
            counted(functions.len(), "function"),
            process.pid()
        ));
        for function in functions.iter().take(shown) {
            let (path, pid) = (function.path.display(), process.pid());
            print(format_args!("  +{path}:{} {} pid={pid}", function.symbol, delay.0));
        }
        if functions.len() > shown {
            print(format_args!("  … {} more (--all shows them)", functions.len() - shown));
        }
        for remark in found.remarks.iter().filter(|remark| remark.target == Some(index)) {
            print(format_args!("  {}", remark.text));
        }
    }
    for notice in notices {
        notice.after("speed-bump-ebpf: warning: ").tell();
    }
    let looked = open(select).and_then(|module| {
        let records = Records::open(Path::new(RECORDS))?;
        recover(&module, &records)?.iter().for_each(|told| tell(format_args!("speed-bump-ebpf: {told}")));
        check(&module, &process, &policies, &found)
    });
    if let Err(error) = looked {
        tell(format_args!("speed-bump-ebpf: warning: an attach would fail: {error}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses `run`: the module is told of a process, and of files that it runs.
pub(super) fn refuse_commands(select: &SelectArgs) -> Result<(), Failure> {
    if select.engine.is_kmod() {
        return Err(refusal(
            "delay a command that has not started yet: start it, and attach to it with --pid",
        ));
    }
    Ok(())
}

fn open(select: &SelectArgs) -> Result<Module, KmodError> {
    let folder = Path::new(FOLDER);
    if select.accept_upstream_module { Module::open_any(folder) } else { Module::open(folder) }
}

/// What is known before the module is asked.
struct Prepared {
    process: Process,
    resolver: SymbolResolver,
    policies: PolicyTable,
    found: NamedFunctions,
}

fn prepare(named: &ProcessArgs, request: &Request) -> Result<Prepared, Failure> {
    if request.entry != EntryChoice::Auto {
        return Err(refusal("reach Python functions (--entry)"));
    }
    let mut pids = named.pids.clone();
    pids.sort_unstable();
    pids.dedup();
    if pids.len() > 1 {
        return Err(refusal(
            "slow one function for several processes (--pid twice), but only for one and its descendants",
        ));
    }
    let Some(process) = prepare::open(&named.pids)?.into_iter().next() else {
        return Err(Failure::new(USAGE, anyhow!("no process: name one with --pid PID")));
    };
    let is_elf = |path: &str| {
        process.open_file(Path::new(path)).is_ok_and(|file| ElfFile::from_file(file, path).is_ok())
    };
    let targets = prepare::read_targets(request, &is_elf).map_err(PrepareError::from)?;
    refuse_targets(&targets)?;
    if let Some(notice) = targets.no_target() {
        tell(format_args!("speed-bump-ebpf: {notice}"));
    }
    let policies = PolicyTable::new(&targets, request.default, request.engine);
    let resolver = SymbolResolver::new(Arc::new(targets));
    let found = resolver.resolve(&process)?;
    Ok(Prepared { process, resolver, policies, found })
}

/// Refuses lines that the module cannot do, all at once.
fn refuse_targets(targets: &Targets) -> Result<(), Failure> {
    let cannot = targets.iter().filter_map(|(_, target)| {
        let why = match target.kind {
            TargetKind::Python => "reach Python functions",
            TargetKind::Usdt => "reach USDT probes",
            TargetKind::Native if target.frequency.is_some_and(|every| every.get() > 1) => {
                "delay every Nth call (frequency=), but only every call"
            }
            TargetKind::Native => return None,
        };
        Some(format!("line {}: `{}`: the kernel module cannot {why}", target.line, target.text))
    });
    let mut cannot: Vec<_> = cannot.collect();
    if cannot.is_empty() {
        return Ok(());
    }
    cannot.push("leave these out, or use --engine bpf".to_owned());
    Err(Failure::new(USAGE, Lines::from_iter(cannot)))
}

fn refusal(what: &str) -> Failure {
    Failure::new(USAGE, anyhow!("the kernel module (--engine kmod) cannot {what}; or use --engine bpf"))
}

/// Looks whether the module has a name and a place for each function.
fn check(
    module: &Module,
    process: &Process,
    policies: &PolicyTable,
    found: &NamedFunctions,
) -> Result<(), KmodError> {
    let delay = |index| policies.delay(index);
    let wanted = wanted(&found.functions, guard(module, process)?.as_mut(), delay)?.len();
    if wanted > TARGETS {
        return Err(KmodError::TooMany { wanted, others: module.listing()?.targets.len() });
    }
    Ok(())
}

/// A line for each target that selects nothing; under `--strict` a failure.
fn unselected(
    strict: bool,
    process: &Process,
    resolver: &SymbolResolver,
    found: &NamedFunctions,
) -> Result<Vec<Lines>, Failure> {
    let mut notices = Vec::new();
    for (index, target) in resolver.targets().iter() {
        if found.functions.iter().any(|function| function.selected.target == index) {
            continue;
        }
        let remarks = found.remarks.iter().filter(|remark| remark.target == Some(index));
        let mut reasons: Vec<_> = remarks.take(3).map(|remark| Reason::Found(remark.text.clone())).collect();
        if reasons.is_empty() {
            let near = nearest(resolver.targets(), process, index, &[]);
            reasons.extend((!near.is_empty()).then_some(Reason::Nearest(near)));
        }
        notices.push(selects_nothing(&SelectsNothing {
            line: target.line,
            target: target.text.clone(),
            processes: vec![(process.pid(), reasons)],
        }));
    }
    if strict && !notices.is_empty() {
        let mut all = Lines::default();
        all.extend(notices);
        return Err(Failure::new(NOTHING_MATCHED, all));
    }
    Ok(notices)
}

/// What the session is about, in a line.
fn header(process: &Process, found: &NamedFunctions) -> String {
    let comm = process.comm().unwrap_or_default();
    format!(
        "process {} ({comm}): {}, engine kmod; each call costs a trap on top of its delay, in every process \
         that runs the file",
        process.pid(),
        counted(found.functions.len(), "function")
    )
}
