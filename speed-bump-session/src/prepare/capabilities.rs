//! Refuses what the chosen engine does not support, before we change anything.

use super::{PrepareError, Request};
use crate::{
    engine::{Capabilities, EngineChoice, EngineKind},
    python::entry_source::EntryChoice,
    targets::{Target, TargetKind, Targets},
    units::Pid,
};

/// Refuses a request that its engine does not support.
pub(super) fn check(request: &Request, pids: &[Pid]) -> Result<(), PrepareError> {
    let (engine, can) = engine_for(request.engine);
    let several = pids.iter().any(|pid| Some(pid) != pids.first());
    let asked = [
        (
            can.frequency || request.default.frequency == 1,
            "delay every Nth call (--frequency, SPEED_BUMP_FREQUENCY), but only every call",
        ),
        (
            can.without_children || request.children,
            "leave children out (--no-children): it slows the process with all its descendants",
        ),
        (can.bound || request.bound.is_none(), "keep to a bound on what a thread is delayed"),
        (can.python || request.entry == EntryChoice::Auto, "reach Python functions (--entry)"),
        (
            can.several_processes || !several,
            "slow one function for several processes (--pid twice), but only for one and its descendants",
        ),
    ];
    match asked.into_iter().find(|(can, _)| !can) {
        Some((_, what)) => Err(refusal(engine, what)),
        None => Ok(()),
    }
}

/// Refuses a command, if the engine cannot begin with its first instruction.
pub(super) fn check_command(choice: EngineChoice) -> Result<(), PrepareError> {
    let (engine, can) = engine_for(choice);
    let instead = "delay a command that has not started yet: start it, and attach to it with --pid";
    if can.commands { Ok(()) } else { Err(refusal(engine, instead)) }
}

/// Refuses targets that the engine does not support. The error names all of them.
pub(super) fn check_targets(choice: EngineChoice, targets: &Targets) -> Result<(), PrepareError> {
    check_callers(targets)?;
    let (engine, can) = engine_for(choice);
    let cannot = targets.iter().filter_map(|(_, target)| {
        let every_nth = target.frequency.is_some_and(|every| every.get() > 1);
        let why = match target.kind {
            TargetKind::Native if !can.native => "reach native functions, only Python's",
            TargetKind::Python if !can.python => "reach Python functions",
            TargetKind::Usdt if !can.usdt => "reach USDT probes",
            TargetKind::Native if target.caller.is_some() && !can.native_callers => {
                "tell who calls a function (caller=)"
            }
            _ if every_nth && !can.frequency => "delay every Nth call (frequency=), but only every call",
            _ => return None,
        };
        Some(format!("line {}: `{}`: {} cannot {why}", target.line, target.text, in_words(engine)))
    });
    let mut cannot: Vec<_> = cannot.collect();
    if cannot.is_empty() {
        return Ok(());
    }
    cannot.push("leave these out, or use --engine bpf".to_owned());
    Err(PrepareError::Incapable(cannot))
}

/// Refuses `caller=` on USDT probes, whose callers no engine sees, and more callers than there is room for.
fn check_callers(targets: &Targets) -> Result<(), PrepareError> {
    targets.check_native_callers().map_err(|error| PrepareError::Incapable(vec![error.to_string()]))?;
    let is_unseen = |target: &Target| target.caller.is_some() && target.kind == TargetKind::Usdt;
    let unseen = targets.iter().map(|(_, target)| target).filter(|target| is_unseen(target));
    let mut refused: Vec<_> = unseen
        .map(|target| {
            let (line, text) = (target.line, &target.text);
            format!(
                "line {line}: `{text}`: who calls is known of functions, and not of USDT probes (caller=)"
            )
        })
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    refused.push("leave `caller=` out there".to_owned());
    Err(PrepareError::Incapable(refused))
}

fn engine_for(choice: EngineChoice) -> (EngineKind, Capabilities) {
    let engine = match choice {
        EngineChoice::Auto => EngineKind::Bpf,
        EngineChoice::Only(engine) => engine,
    };
    (engine, engine.capabilities())
}

fn refusal(engine: EngineKind, what: &str) -> PrepareError {
    let engine_in_words = in_words(engine);
    PrepareError::Incapable(vec![format!(
        "{engine_in_words} (--engine {engine}) cannot {what}; or use --engine bpf"
    )])
}

fn in_words(engine: EngineKind) -> String {
    match engine {
        EngineKind::Kmod => "the kernel module".to_owned(),
        EngineKind::Bpf | EngineKind::Signal | EngineKind::Helper => format!("the engine `{engine}`"),
    }
}
