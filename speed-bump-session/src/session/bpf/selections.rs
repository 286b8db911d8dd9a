//! Reports Python targets that have selected nothing: when a session begins, and for a command at its end.

use super::{context::Context, helpers::Helpers, phase::Processes};
use crate::{
    bounds::TARGETS_EXPLAINED, probe::resolve::compiled, session::error::SessionError,
    stats::report::SessionReport, targets::TargetKind,
};

/// Warns of Python targets that select nothing in any process, neither in a helper's list nor in a plan. With
/// `strict` this is an error instead. If no helper was loaded, we told the user before.
///
/// # Errors
/// Under `strict`: all targets that select nothing.
pub(super) fn check(
    helpers: &Helpers,
    processes: &Processes,
    context: &mut Context,
) -> Result<(), SessionError> {
    if context.settings.is_guess && !context.settings.strict {
        return Ok(());
    }
    let mut missing = Vec::new();
    let unknown = helpers.asleep().map(|pid| {
        format!("; those of process {pid} are not known yet, as a thread keeps the interpreter's lock")
    });
    for (number, index) in context.without_functions().into_iter().enumerate() {
        let Some(target) = context.resolver.targets().get(index) else { continue };
        let mut processes = processes.iter().map(|(_, covered)| &covered.process);
        let why = (number < TARGETS_EXPLAINED)
            .then(|| processes.find_map(|process| compiled(process, target, context.resolver.explaining())))
            .flatten();
        missing.push(format!(
            "line {}: `{}` selects nothing among the functions that are loaded now{}",
            target.line,
            target.text,
            why.map(|why| format!(": {why}")).or_else(|| unknown.clone()).unwrap_or_default()
        ));
    }
    let without_caller = context.without_caller(TargetKind::Python).into_iter();
    missing.extend(without_caller.map(|text| format!("{text} among those that are loaded now")));
    if context.settings.strict && !missing.is_empty() {
        missing.extend(helpers.unlisted().into_iter().map(str::to_owned));
        return Err(SessionError::NothingSelected(missing));
    }
    for text in missing {
        context.warn(format!(
            "{text}; functions that are loaded later are covered, and `list` names the nearest"
        ));
    }
    Ok(())
}

/// At the end, reports which targets have selected nothing.
pub(super) fn tell_unselected(report: &SessionReport, context: &mut Context) {
    let selected: Vec<bool> = report.targets.iter().map(|target| !target.functions.is_empty()).collect();
    let targets = context.resolver.targets().iter().zip(selected);
    let missing: Vec<String> = targets
        .filter(|(_, selected)| !selected)
        .map(|((_, target), _)| {
            let among = match target.kind {
                TargetKind::Python => "the Python functions that were loaded",
                TargetKind::Native | TargetKind::Usdt => "the files that were mapped",
            };
            format!("line {}: `{}` selected nothing among {among}", target.line, target.text)
        })
        .collect();
    let without_caller = [
        (TargetKind::Python, "the Python functions that were loaded"),
        (TargetKind::Native, "the files that were mapped"),
    ];
    let without_caller = without_caller.into_iter().flat_map(|(kind, among)| {
        context.without_caller(kind).into_iter().map(move |text| format!("{text} among {among}"))
    });
    for text in missing.into_iter().chain(without_caller.collect::<Vec<_>>()) {
        context.warn(text);
    }
}
