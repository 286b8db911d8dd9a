//! `report`: what sweeps found, once more, from what they measured.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};

use super::{
    args::ReportArgs,
    exit::{CONDITION, Failure, SYSTEM, USAGE},
    outputs::{output_at, write_html, write_trace_events},
    terminal::{Lines, print_as_is, style},
};
use crate::{
    experiment::{
        analysis::findings::findings,
        record::{Experiment, Measured, SCHEMA},
    },
    printable::{at_most, printable, printable_json},
    report::{
        compare::{self, Comparison, compare},
        condition::Condition,
        csv, markdown, text,
        words::NAME_COLUMNS,
    },
    stats::json,
};

/// Experiments are some MB at most; whatever else the path leads to.
const MOST_BYTES: u64 = 256 << 20;
/// Functions that are named where a condition holds.
const NAMED: usize = 5;

/// Reads records, and reports.
pub(super) fn run(arguments: &ReportArgs) -> Result<ExitCode, Failure> {
    let read = |path: &Path| read(path).map_err(|error| Failure::new(USAGE, error));
    let (before, last) = match arguments.files.as_slice() {
        [before, after] => (Some(read(before)?), read(after)?),
        files => (None, read(files.first().map_or(Path::new("-"), |path| path))?),
    };
    let comparison = before.map(|before| compare(&before, &last));
    match &comparison {
        None => print(arguments, &last)?,
        Some(comparison) => print_comparison(arguments, comparison)?,
    }
    check(&arguments.fail_if, &last, comparison.as_ref())
}

fn print(arguments: &ReportArgs, experiment: &Experiment) -> Result<(), Failure> {
    if let Some(path) = &arguments.html {
        write_html(&output_at(path)?, experiment)?;
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
    let is_asked_for = [
        (arguments.csv, "--csv"),
        (arguments.html.is_some(), "--html"),
        (arguments.trace_events.is_some(), "--trace-events"),
    ];
    if let Some((_, form)) = is_asked_for.into_iter().find(|(is, _)| *is) {
        let text = format!("{form} is for one file: two are compared as text, --markdown or --json");
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    if arguments.markdown {
        print_as_is(markdown::render_comparison(comparison).trim_end());
    } else if arguments.json {
        print_json(comparison)?;
    } else {
        print_as_is(compare::text::render(comparison).trim_end());
    }
    Ok(())
}

fn print_json(report: &impl serde::Serialize) -> Result<(), Failure> {
    let text = json::text(report).map_err(|error| Failure::new(SYSTEM, error))?;
    print_as_is(printable_json(&text).trim_end());
    Ok(())
}

/// Fails if a condition holds, or cannot be answered.
fn check(
    conditions: &[Condition],
    last: &Experiment,
    comparison: Option<&Comparison>,
) -> Result<ExitCode, Failure> {
    let mut held = Vec::new();
    for condition in conditions {
        let names =
            condition.holds(&last.findings, comparison).map_err(|error| Failure::new(USAGE, error))?;
        if names.is_empty() {
            continue;
        }
        let named: Vec<String> =
            names.iter().take(NAMED).map(|name| at_most(printable(name), NAME_COLUMNS)).collect();
        let more = names.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        held.push(format!("{condition} holds for {}{more}", named.join(", ")));
    }
    if held.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(CONDITION, Lines::from_iter(held)))
}

/// An experiment, with the analysis done anew.
fn read(path: &Path) -> anyhow::Result<Experiment> {
    let name = path.display();
    let mut text = Vec::new();
    let read = |text: &mut Vec<u8>| -> io::Result<usize> {
        if path == Path::new("-") {
            return io::stdin().lock().take(MOST_BYTES + 1).read_to_end(text);
        }
        File::open(path)?.take(MOST_BYTES + 1).read_to_end(text)
    };
    read(&mut text).with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(anyhow!("{name} is larger than any experiment: name a file that `sweep --json` wrote"));
    }
    let schema: Schema =
        serde_json::from_slice(&text).with_context(|| format!("{name} is not what `sweep --json` writes"))?;
    if schema.schema != SCHEMA {
        return Err(anyhow!("{name} has the schema {}, and this version reads {SCHEMA}", schema.schema));
    }
    let measured: Measured =
        serde_json::from_slice(&text).with_context(|| format!("{name} is not a whole experiment"))?;
    let findings = findings(&measured);
    Ok(Experiment { measured, findings })
}

/// What every report of ours begins with.
#[derive(serde::Deserialize)]
struct Schema {
    schema: String,
}
