//! `report`: prints sweeps and sessions from their JSON.

mod experiment;
mod session;

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    args::{ReportArgs, report::RulesArgs},
    exit::{Failure, USAGE},
};
use crate::{
    experiment::record::{self, Experiment, Measured},
    report::session::RecordedSession,
    stats::report,
};

/// Limit for a file. Records have some MB at most.
const MAX_BYTES: u64 = 256 << 20;

/// The record in a file.
enum Recorded {
    Sweep(Box<Experiment>),
    Session(RecordedSession),
}

/// Reads the files and prints the report.
pub(super) fn run(arguments: &ReportArgs) -> Result<ExitCode, Failure> {
    let read = |path: &Path| read(path, &arguments.rules).map_err(|error| Failure::new(USAGE, error));
    let records = arguments.files.iter().map(|path| read(path)).collect::<Result<Vec<Recorded>, _>>()?;
    match records.as_slice() {
        [Recorded::Sweep(last)] => experiment::run(arguments, None, last),
        [Recorded::Sweep(before), Recorded::Sweep(last)] => experiment::run(arguments, Some(before), last),
        [Recorded::Session(session)] => session::run(arguments, session),
        _ => {
            let text = "two files must be two sweeps, to compare; to add up sessions, use --add";
            Err(Failure::new(USAGE, anyhow!(text)))
        }
    }
}

/// Reads a sweep, and repeats its analysis, or a session.
fn read(path: &Path, rules: &RulesArgs) -> Result<Recorded> {
    let name = path.display();
    let mut text = Vec::new();
    let read = |text: &mut Vec<u8>| -> io::Result<usize> {
        if path == Path::new("-") {
            return io::stdin().lock().take(MAX_BYTES + 1).read_to_end(text);
        }
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(text)
    };
    read(&mut text).with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(anyhow!("{name} is larger than any report: name a file that --json wrote"));
    }
    let Schema { schema } =
        serde_json::from_slice(&text).with_context(|| format!("{name} is not what --json writes"))?;
    match schema.as_str() {
        record::SCHEMA | record::SCHEMA_1 => {
            let mut measured: Measured =
                serde_json::from_slice(&text).with_context(|| format!("{name} is not a whole experiment"))?;
            measured.rules.closed_loop |= rules.closed_loop;
            measured.rules.worth = rules.worth.unwrap_or(measured.rules.worth);
            measured.rules.threshold = rules.threshold.unwrap_or(measured.rules.threshold);
            Ok(Recorded::Sweep(Box::new(Experiment::new(measured))))
        }
        report::SCHEMA => {
            let session =
                serde_json::from_slice(&text).with_context(|| format!("{name} is not a whole session"))?;
            Ok(Recorded::Session(session))
        }
        other => Err(anyhow!(
            "{name} has the schema {other}, and this version reads {}, {} and {}",
            record::SCHEMA,
            record::SCHEMA_1,
            report::SCHEMA
        )),
    }
}

/// The field that names the format of a record.
#[derive(serde::Deserialize)]
struct Schema {
    schema: String,
}
