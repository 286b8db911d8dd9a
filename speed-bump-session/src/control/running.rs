//! Answers requests to a running session.

use super::{
    RequestError,
    answer::{About, DosesSet, LineSet, TargetAbout, TargetsChanged},
    choice,
    request::{self, DoseAsk, Drop, Subject},
};
use crate::{
    policy::{Dose, Selection},
    session::{controls::Controls, known::FunctionId},
    targets::{TargetChange, TargetIndex},
    units::Pid,
};

/// Describes the session.
pub fn about(controls: &Controls, pids: &[Pid]) -> About {
    let (known, policies) = (controls.known(), controls.policies());
    let all_targets = controls.targets();
    let targets = all_targets.iter().filter(|(_, target)| !target.is_dropped).map(|(index, target)| {
        let dose = policies.dose(index);
        TargetAbout {
            pattern: target.pattern_and_caller(),
            delay_ns: dose.delay.0,
            frequency: dose.frequency,
            functions: known.iter().filter(|(_, function)| function.target == index).count(),
        }
    });
    About { pids: pids.iter().map(|pid| pid.get()).collect(), targets: targets.collect() }
}

/// Sets doses, by number and by line. All of them take effect at the same time.
///
/// # Errors
/// We cannot set the doses. Nothing has changed.
pub fn set(controls: &Controls, doses: &[DoseAsk], lines: &[String]) -> Result<DosesSet, RequestError> {
    let known = controls.known();
    let mut changes: Vec<(Selection, Dose)> = Vec::with_capacity(doses.len());
    for ask in doses {
        let selection = match ask.subject()? {
            Subject::Target(index) => Selection::Target(index),
            Subject::Function(id) => {
                let function = known.get(FunctionId(id)).ok_or_else(|| {
                    RequestError::request(format!("there is no function {id}: the last is {}", known.len()))
                })?;
                Selection::Function(function.clone())
            }
        };
        changes.push((selection, ask.dose()?));
    }
    let mut set = Vec::with_capacity(lines.len());
    for line in lines {
        let chosen = choice::by_line(controls, line)?;
        let delays = chosen.changes.iter().map(|(_, dose)| dose.delay.0).collect();
        let (targets, functions) = (chosen.targets, chosen.functions);
        set.push(LineSet { targets, functions, delay_ns: different(delays) });
        changes.extend(chosen.changes);
    }
    Ok(DosesSet { at_ns: controls.set(&changes)?.at, lines: set })
}

/// Adds and drops targets. A new target whose line gives no dose gets the default dose of the session.
///
/// # Errors
/// See [`Controls::change_targets`]. After an error nothing has changed, with one exception: the session does
/// not cover some functions of the changed targets in a process.
pub fn change_targets(
    controls: &Controls,
    add: &[String],
    drop: &[Drop],
) -> Result<TargetsChanged, RequestError> {
    let targets = controls.targets();
    let mut dropped: Vec<TargetIndex> = Vec::with_capacity(drop.len());
    for ask in drop {
        match ask {
            Drop::Target(number) if targets.get(TargetIndex(*number)).is_some() => {
                dropped.push(TargetIndex(*number));
            }
            Drop::Target(number) => {
                let text = format!("there is no target {number}: the session has {}", targets.len());
                return Err(RequestError::request(text));
            }
            Drop::Named(pattern) => dropped.extend(choice::named(&targets, pattern)?),
        }
    }
    let add = request::lines(add, controls)?;
    let first = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let added: Vec<u32> = (first..).take(add.len()).collect();
    let functions_of = |targets: &[TargetIndex]| {
        controls.known().iter().filter(|(_, function)| targets.contains(&function.target)).count()
    };
    let dropped_functions = functions_of(&dropped);
    let numbers = dropped.iter().map(|index| index.0).collect();
    let at = controls.change_targets(TargetChange { add, drop: dropped })?.at;
    let came: Vec<TargetIndex> = added.iter().copied().map(TargetIndex).collect();
    let policies = controls.policies();
    let delays = came.iter().map(|index| policies.dose(*index).delay.0).collect();
    Ok(TargetsChanged {
        functions: functions_of(&came),
        targets: added,
        delay_ns: different(delays),
        dropped: numbers,
        dropped_functions,
        at_ns: at,
    })
}

/// The different delays, sorted.
fn different(mut delays: Vec<u64>) -> Vec<u64> {
    delays.sort_unstable();
    delays.dedup();
    delays
}
