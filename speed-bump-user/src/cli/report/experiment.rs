//! `report` for one sweep, or two.

use std::process::ExitCode;

use anyhow::anyhow;

use super::super::{
    args::ReportArgs,
    exit::{CONDITION, Failure, SYSTEM, USAGE},
    outputs::{output_at, write_html, write_trace_events},
    terminal::{Lines, print_as_is, style, tell},
};
use crate::{
    experiment::record::Experiment,
    printable::{printable_json, printable_name},
    report::{
        compare::{self, Comparison, compare},
        condition::{Condition, Holds},
        csv, markdown, text,
        words::some_of,
    },
    stats::json,
};

/// Functions that are named if a condition holds for them.
const NAMED: usize = 5;

/// Reports the last sweep, or what changed from the one before.
pub(super) fn run(
    arguments: &ReportArgs,
    before: Option<&Experiment>,
    last: &Experiment,
) -> Result<ExitCode, Failure> {
    if arguments.profile.is_given() {
        let text = "--sort, --reverse, --limit, --strip-dirs, --callers, --callees, --add and --pstats are \
                    for sessions with --times";
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    let comparison = before.map(|before| compare(before, last));
    match &comparison {
        None => print(arguments, last)?,
        Some(comparison) => print_comparison(arguments, comparison)?,
    }
    check(&arguments.fail_if, last, comparison.as_ref())
}

fn print(arguments: &ReportArgs, experiment: &Experiment) -> Result<(), Failure> {
    if let Some(path) = &arguments.html {
        write_html(&output_at(path)?, experiment, false)?;
    } else if let Some(path) = &arguments.trace_events {
        write_trace_events(&output_at(path)?, experiment)?;
    } else if arguments.markdown {
        print_as_is(markdown::render(experiment).trim_end());
    } else if arguments.csv {
        print_as_is(csv::render(experiment).trim_end());
    } else if arguments.json {
        print_json(experiment)?;
    } else {
        print_as_is(text::render(experiment, style()).trim_end());
    }
    Ok(())
}

fn print_comparison(arguments: &ReportArgs, comparison: &Comparison) -> Result<(), Failure> {
    let flags = [
        (arguments.csv, "--csv"),
        (arguments.html.is_some(), "--html"),
        (arguments.trace_events.is_some(), "--trace-events"),
    ];
    if let Some((_, form)) = flags.into_iter().find(|(is_given, _)| *is_given) {
        let text = format!("{form} is for one file: for a comparison use text, --markdown or --json");
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    if arguments.markdown {
        print_as_is(markdown::render_comparison(comparison).trim_end());
    } else if arguments.json {
        print_json(comparison)?;
    } else {
        print_as_is(compare::text::render(comparison, style().columns).trim_end());
    }
    Ok(())
}

fn print_json(report: &impl serde::Serialize) -> Result<(), Failure> {
    let text = json::text(report).map_err(|error| Failure::new(SYSTEM, error))?;
    print_as_is(printable_json(&text).trim_end());
    Ok(())
}

/// Fails if a condition holds, or is unknown.
fn check(
    conditions: &[Condition],
    last: &Experiment,
    comparison: Option<&Comparison>,
) -> Result<ExitCode, Failure> {
    let (mut held, mut unanswered) = (Vec::new(), Vec::new());
    for condition in conditions {
        match condition.holds(&last.findings, comparison) {
            Ok(Holds { functions, unknown }) => {
                if !functions.is_empty() {
                    held.push(format!("{condition} holds for {}", named(&functions)));
                }
                if !unknown.is_empty() {
                    let names = named(&unknown);
                    tell(format_args!("speed-bump-ebpf: note: {condition} is unknown for {names}"));
                }
            }
            Err(error) => unanswered.push(error.to_string()),
        }
    }
    // A condition that holds takes precedence.
    let code = if held.is_empty() { USAGE } else { CONDITION };
    held.extend(unanswered);
    if held.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::new(code, Lines::from_iter(held))) }
}

/// The first of some names, and how many more there are.
fn named(names: &[String]) -> String {
    some_of(&names.iter().map(printable_name).collect::<Vec<_>>(), NAMED)
}
