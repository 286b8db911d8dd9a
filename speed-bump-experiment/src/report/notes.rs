//! Notes below the table, shared by all formats of a report.

use super::{
    sections::is_folded,
    sharing, threads,
    words::{fixed, name_and_place, name_and_place_of, phase_name},
};
use crate::{
    analysis::{callers::OverCallers, factor::Factor, findings::Findings, verdict::Verdict},
    record::Measured,
    units::Nanos,
};

/// All notes, a line each.
pub(super) fn notes(measured: &Measured, findings: &Findings) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(unit(measured, findings).map(|unit| format!("unit: {unit}")));
    lines.extend(threads::lines(findings));
    lines.extend(over_callers(findings));
    lines.extend(reasons(findings).into_iter().filter_map(|(reason, names)| match names.as_slice() {
        [] => None,
        [name] => Some(format!("{name}: {reason}")),
        names => Some(format!("{} functions: {reason}", names.len())),
    }));
    let shared = sharing::shared(findings);
    lines.extend(shared.iter().map(|shared| format!("in common with units: {shared}")));
    for problem in &findings.validity.problems {
        let word = if problem.fatal { "not valid" } else { "note" };
        lines.push(format!("{word}: {}", problem.text));
    }
    for phase in &measured.phases {
        let took = phase.end_ns.0.saturating_sub(phase.start_ns.0) as f64 / 1e9;
        lines.push(format!("{}: {took:.1} s; {}", phase_name(phase.kind), phase.outcome));
    }
    lines.push(format!("{} slices count; seed {}", findings.validity.slices, measured.seed));
    lines
}

/// `burn (app.py:12) from all 2 callers: sensitivity 0.25 [0.21, 0.29]`, for each function that was tested by
/// its callers.
pub(super) fn over_callers(findings: &Findings) -> Vec<String> {
    let line = |of: &OverCallers| {
        format!(
            "{} from all {} callers: sensitivity {} [{}, {}]",
            name_and_place_of(&of.name, Some(&of.file), of.line),
            of.arms,
            fixed(of.sensitivity, 2),
            fixed(of.low, 2),
            fixed(of.high, 2)
        )
    };
    findings.over_callers.iter().map(line).collect()
}

/// The unit and its time.
pub(super) fn unit(measured: &Measured, findings: &Findings) -> Option<String> {
    let takes = Nanos(findings.time_per_unit_ns? as u64);
    let name = &measured.unit.name;
    Some(match measured.by.quantile() {
        None => format!("{name}; one takes {takes}"),
        Some(share) => format!(
            "{name}; {:.0} of 100 take {takes} at most, which is what worths are shares of. Calls and own \
             times are per unit that calls the function",
            share * 100.0
        ),
    })
}

/// Reasons of verdicts, in the order of the table, with their functions.
fn reasons(findings: &Findings) -> Vec<(&str, Vec<String>)> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    let mut is_folded = is_folded(findings);
    for factor in tested(findings).filter(|of| !is_folded(of)) {
        let Some(reason) = factor.reason.as_deref() else { continue };
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(name_and_place(factor)),
            None => reasons.push((reason, vec![name_and_place(factor)])),
        }
    }
    reasons
}

/// The functions that the experiment tested.
pub(super) fn tested(findings: &Findings) -> impl Iterator<Item = &Factor> {
    findings.factors.iter().filter(|factor| factor.verdict != Verdict::Dismissed)
}

/// A line about undecided functions without a row; `None` if all have one.
pub(super) fn folded(findings: &Findings) -> Option<String> {
    let folded: Vec<&Factor> = tested(findings).filter(is_folded(findings)).collect();
    if folded.is_empty() {
        return None;
    }
    let bound = match Factor::worth_bound(&folded) {
        Some(most) if most < 1.0 => {
            format!(
                ": each is worth under {} % of a unit's time, which more time would narrow",
                fixed(most * 100.0, 1)
            )
        }
        Some(_) | None => ": of some too little is known to say what they are worth".to_owned(),
    };
    Some(format!("{} more are undecided{bound}", folded.len()))
}

/// A line with the number of dismissed functions; `None` if there are none.
pub(super) fn dismissed(findings: &Findings) -> Option<String> {
    let count = findings.factors.len() - tested(findings).count();
    let functions = match count {
        0 => return None,
        1 => "1 function was".to_owned(),
        count => format!("{count} functions were"),
    };
    Some(format!("{functions} dismissed: they take too little time, or were not called"))
}
