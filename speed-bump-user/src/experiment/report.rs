//! What an experiment found, as a table for people. Everything in it is of the record's JSON.

mod further;
mod sharing;

use super::{
    analysis::{
        factor::{Factor, FactorKind},
        findings::Findings,
        verdict::Verdict,
    },
    record::{Measured, PhaseKind},
};
use crate::{
    elf::demangle::for_people,
    stats::table::{aligned, place},
    units::Nanos,
};

/// Functions that are shown in the table.
pub const SHOWN: usize = 30;

/// The report: the answer, the table, and what readers should know.
pub fn render(measured: &Measured, findings: &Findings) -> String {
    let mut text = format!("{}\n\n", findings.verdict);
    text += &table(findings, SHOWN);
    text += &further::table(&findings.further);
    text += &format!("\n{}", notes(measured, findings));
    text
}

/// The functions, the ones that are worth most first.
pub fn table(findings: &Findings, shown: usize) -> String {
    let heading = ["function", "calls/unit", "own/unit", "sensitivity", "worth at most", "verdict"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let looked_at = || findings.factors.iter().filter(|factor| factor.verdict != Verdict::Dismissed);
    rows.extend(looked_at().take(shown).map(row));
    let mut text = aligned(rows);
    let more = looked_at().count().saturating_sub(shown);
    if more > 0 {
        text += &format!("… {more} more functions\n");
    }
    let dismissed = findings.factors.len() - looked_at().count();
    if dismissed > 0 {
        let functions =
            if dismissed == 1 { "1 function was".to_owned() } else { format!("{dismissed} functions were") };
        text += &format!("{functions} dismissed: they take too little time, or were not called\n");
    }
    text
}

fn row(factor: &Factor) -> Vec<String> {
    vec![
        name(factor),
        format!("{:.1}", factor.calls_per_unit),
        factor.own_ns_per_unit.map_or_else(nothing, |own| Nanos(own.max(0.0) as u64).to_string()),
        interval(factor.sensitivity, factor.low, factor.high, |value| format!("{value:.2}"), ""),
        interval(
            factor.worth,
            factor.worth_low,
            factor.worth_high,
            |value| format!("{:.1}", value * 100.0),
            " %",
        ),
        verdict(factor),
    ]
}

fn name(factor: &Factor) -> String {
    let name = match factor.kind {
        FactorKind::Native => for_people(&factor.name).unwrap_or_else(|| factor.name.clone()),
        FactorKind::Python | FactorKind::Usdt | FactorKind::Group => factor.name.clone(),
    };
    match &factor.file {
        Some(file) => format!("{name} ({})", place(file, factor.line)),
        None => name,
    }
}

/// `0.98 [0.93, 1.03]`, with the unit behind the first.
fn interval(
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    shown: impl Fn(f64) -> String,
    unit: &str,
) -> String {
    match (value, low, high) {
        (Some(value), Some(low), Some(high)) => {
            format!("{}{unit} [{}, {}]", shown(value), shown(low), shown(high))
        }
        (None, None, Some(high)) => format!("< {}{unit}", shown(high)),
        _ => nothing(),
    }
}

fn verdict(factor: &Factor) -> String {
    match (factor.verdict, factor.slack_ns) {
        (Verdict::Matters, _) => "matters".to_owned(),
        (Verdict::DoesNotMatter, Some(slack)) => {
            format!("does not matter (hidden up to {} a unit)", rounded(slack))
        }
        (Verdict::DoesNotMatter, None) if factor.low.is_some_and(|low| low > 0.0) => {
            "does not matter (it shows, and is worth too little)".to_owned()
        }
        (Verdict::DoesNotMatter, None) => "does not matter".to_owned(),
        (Verdict::Jointly, _) => "matters with others".to_owned(),
        (Verdict::Undecided, _) => "undecided".to_owned(),
        (Verdict::Dismissed, _) => "dismissed".to_owned(),
    }
}

/// To two digits.
fn rounded(ns: f64) -> Nanos {
    let scale = 10_f64.powf((ns.max(1.0).log10().floor() - 1.0).max(0.0));
    Nanos(((ns / scale).round() * scale) as u64)
}

fn notes(measured: &Measured, findings: &Findings) -> String {
    let mut text = String::new();
    if let Some(unit) = findings.time_per_unit_ns {
        text += &format!("unit: {}; one takes {}\n", measured.unit.name, Nanos(unit as u64));
    }
    for (reason, names) in reasons(findings) {
        text += &match names.as_slice() {
            [] => String::new(),
            [name] => format!("{name}: {reason}\n"),
            names => format!("{} functions: {reason}\n", names.len()),
        };
    }
    text += &sharing::lines(findings);
    for problem in &findings.validity.problems {
        let word = if problem.fatal { "not valid" } else { "note" };
        text += &format!("{word}: {}\n", problem.text);
    }
    for phase in &measured.phases {
        let took = phase.end_ns.0.saturating_sub(phase.start_ns.0) as f64 / 1e9;
        text += &format!("{}: {took:.1} s; {}\n", phase_name(phase.kind), phase.outcome);
    }
    text + &format!("{} slices count; seed {}\n", findings.validity.slices, measured.seed)
}

/// Reasons of verdicts, in the order of the table, with the functions that have them.
fn reasons(findings: &Findings) -> Vec<(&str, Vec<String>)> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for factor in findings.factors.iter().filter(|of| of.verdict != Verdict::Dismissed) {
        let Some(reason) = factor.reason.as_deref() else { continue };
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(name(factor)),
            None => reasons.push((reason, vec![name(factor)])),
        }
    }
    reasons
}

/// What people call a phase.
pub fn phase_name(kind: PhaseKind) -> &'static str {
    match kind {
        PhaseKind::Census => "census",
        PhaseKind::Titrate => "titrate",
        PhaseKind::Screen => "screen",
        PhaseKind::Confirm => "confirm",
        PhaseKind::Recover => "recover",
    }
}

fn nothing() -> String {
    "-".to_owned()
}
