//! At the end of a session: the names closest to those of Python targets that have selected nothing.
//!
//! The helper reports only functions that targets select. So it is loaded once more when the session's own
//! helper has left, and lists everything that is loaded.

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

/// How many names are given.
const NAMED: usize = 3;
/// How long the process may take to reach a point where the helper can be loaded: a user who ends a session
/// wants to go on.
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

/// Lists what a process has loaded after its helper has left, and names what is closest. Leaves a process
/// alone that now runs another program. Returns what was reported.
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
        // For a compiled module the user was told so: other names would only mislead.
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
