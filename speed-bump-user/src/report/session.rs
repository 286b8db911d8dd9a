//! What `--json` of a session has, as far as reports are made of it.

use std::path::PathBuf;

use serde::Deserialize;

use crate::{
    stats::{callers::CallerReport, report::SessionReport, times::TimesReport},
    targets::TargetKind,
    units::Nanos,
};

/// A session that has ended.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedSession {
    /// From attach to detach.
    pub duration_ns: Nanos,
    /// For each line of the targets file.
    pub targets: Vec<RecordedTarget>,
}

/// What was counted for one target.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedTarget {
    /// What kind of function it selects.
    pub kind: TargetKind,
    /// Its functions.
    pub functions: Vec<RecordedFunction>,
}

/// What was counted for one function.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedFunction {
    /// Symbol, qualified name, or `provider:name`.
    pub name: String,
    /// The file that it lies in.
    pub file: PathBuf,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// Calls seen.
    pub calls: u64,
    /// Its times, where calls were timed.
    #[serde(flatten)]
    pub times: Option<TimesReport>,
    /// Who called it, where that was recorded.
    #[serde(default)]
    pub callers: Option<Vec<CallerReport>>,
}

impl From<&SessionReport> for RecordedSession {
    fn from(report: &SessionReport) -> Self {
        let targets = report.targets.iter().map(|target| RecordedTarget {
            kind: target.kind,
            functions: target
                .functions
                .iter()
                .map(|of| RecordedFunction {
                    name: of.name.clone(),
                    file: of.file.clone(),
                    line: of.line,
                    calls: of.calls,
                    times: of.times,
                    callers: of.callers.clone(),
                })
                .collect(),
        });
        let nanos = u64::try_from(report.duration.as_nanos()).unwrap_or(u64::MAX);
        Self { duration_ns: Nanos(nanos), targets: targets.collect() }
    }
}
