//! At the end of a session, finds names that are close to the names in Python targets that have selected
//! nothing.
//!
//! The helper reports only functions that targets select. So when the session's own helper has left, we load
//! the helper once more, and it lists all functions.

use std::{collections::HashSet, time::Duration};

use super::context::Context;
use crate::{
    bounds::TARGETS_EXPLAINED,
    elf::Effort,
    presence::{HelperSetup, survey::loaded},
    probe::resolve::compiled,
    process::{Process, Program},
    targets::{TargetIndex, TargetKind},
};

/// The most names for a target.
const NAMED: usize = 3;
/// How long the process may take to reach a point where we can load the helper. This time is short, because a
/// user who ends a session wants to go on.
const PATIENCE: Duration = Duration::from_millis(300);

/// Python targets that have selected nothing so far.
fn never_selected(context: &Context) -> Vec<TargetIndex> {
    let doses = context.state.doses();
    let known = doses.functions.known();
    let known: HashSet<TargetIndex> = known.iter().map(|(_, function)| function.target).collect();
    let targets = doses.targets.iter();
    let python = targets.filter(|(_, target)| target.kind == TargetKind::Python && !target.is_dropped);
    python.map(|(index, _)| index).filter(|index| !known.contains(index)).collect()
}

/// After the session's helper has left, lists the functions in a process and reports the closest names. Does
/// nothing if the process now runs another program. Returns the messages.
pub(super) fn name_nearest(
    process: &Process,
    program: &Program,
    setup: &HelperSetup,
    context: &mut Context,
) -> Vec<String> {
    let missing = never_selected(context);
    if missing.is_empty() || !process.is_alive() {
        return Vec::new();
    }
    let setup = HelperSetup { timeout: setup.timeout.min(PATIENCE), ..setup.clone() };
    let interpreters = context.resolver.interpreter_files(process).ok();
    let names = interpreters.map(|interpreters| loaded(process, program, &interpreters, &setup));
    let names = match names {
        Some(Ok(names)) => names,
        Some(Err(error)) => {
            tracing::info!("what {} has loaded is not known: {error}", process.pid());
            return Vec::new();
        }
        None => return Vec::new(),
    };
    let targets = context.state.doses().targets.clone();
    let effort = Effort::default();
    let mut told = Vec::new();
    for index in missing.into_iter().take(TARGETS_EXPLAINED) {
        let Some(target) = targets.get(index) else { continue };
        let pairs = names.iter().map(|(module, name)| (module.as_str(), name.as_str()));
        let nearest = target.nearest(pairs, NAMED);
        // For a compiled module the user has had an explanation, so other names would mislead.
        if nearest.is_empty() || compiled(process, target, &effort).is_some() {
            continue;
        }
        let nearest = nearest.join("`, `");
        let text = format!("line {}: `{}`: similar names are `{nearest}`", target.line, target.text);
        told.push(text.clone());
        context.warn(text);
    }
    told
}
