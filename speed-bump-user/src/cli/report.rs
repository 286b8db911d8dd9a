//! `report`: what a sweep found, once more, from what it measured.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};

use super::{
    args::ReportArgs,
    exit::{Failure, SYSTEM, USAGE},
    outputs::write_html,
    terminal::{print_as_is, style},
};
use crate::{
    experiment::{
        analysis::findings::findings,
        record::{Experiment, Measured, SCHEMA},
    },
    printable::printable_json,
    report::{csv, markdown, text},
    stats::{json, output::Output},
};

/// Experiments are some MB at most; whatever else the path leads to.
const MOST_BYTES: u64 = 256 << 20;

/// Reads a record, and reports.
pub(super) fn run(arguments: &ReportArgs) -> Result<ExitCode, Failure> {
    let measured = read(&arguments.file).map_err(|error| Failure::new(USAGE, error))?;
    let findings = findings(&measured);
    let experiment = Experiment { measured, findings };
    if let Some(path) = &arguments.html {
        let output = Output::at(path.clone()).map_err(|error| Failure::new(USAGE, error))?;
        write_html(Some(&output), &experiment)?;
    } else if arguments.markdown {
        print_as_is(markdown::render(&experiment).trim_end());
    } else if arguments.csv {
        print_as_is(csv::render(&experiment).trim_end());
    } else if arguments.json {
        let text = json::text(&experiment);
        let text = text.map_err(|error| Failure::new(SYSTEM, error))?;
        print_as_is(printable_json(&text).trim_end());
    } else {
        print_as_is(text::render(&experiment, style()).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<Measured> {
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
    serde_json::from_slice(&text).with_context(|| format!("{name} is not a whole experiment"))
}

/// What every report of ours begins with.
#[derive(serde::Deserialize)]
struct Schema {
    schema: String,
}
