//! The report of a session: one record, of which every output is a rendering.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;
use speed_bump_abi::{FunctionStats, times::FunctionTimes};

use super::times::TimesReport;
use crate::{
    engine::EngineKind,
    probe::plan::Entry,
    targets::{Target, TargetKind},
    units::{Nanos, Pid},
};

/// Name and version of the JSON form; a change that readers would notice gets another number.
pub const SCHEMA: &str = "speed-bump/session/1";

/// What a session counted.
#[derive(Clone, Debug, Serialize)]
pub struct SessionReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The process that was attached to; the first of several.
    pub pid: Pid,
    /// All processes that were named on the command line.
    pub pids: Vec<Pid>,
    /// Processes covered over the session, children included.
    pub processes: usize,
    /// Who spun.
    pub engine: EngineKind,
    /// From attach to detach.
    #[serde(rename = "duration_ns", serialize_with = "as_nanos")]
    pub duration: Duration,
    /// One record for each line of the targets file, in its order.
    pub targets: Vec<TargetReport>,
    /// What went wrong without ending the session.
    pub warnings: Vec<String>,
}

/// What was counted for one target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// The target's `id=`, or its pattern.
    pub id: String,
    /// What kind of function it selects.
    pub kind: TargetKind,
    /// The patterns, as written.
    pub pattern: String,
    /// Who spun.
    pub engine: EngineKind,
    /// How calls became visible; absent when nothing was selected.
    pub entry: Option<Entry>,
    /// The smallest delay possible at its sites: of several, the largest floor.
    pub floor_ns: Nanos,
    /// The delay asked for, per trigger.
    pub requested_ns: Nanos,
    /// Every how many matching calls.
    pub frequency: u64,
    /// Calls seen.
    pub calls: u64,
    /// Calls delayed.
    pub delayed: u64,
    /// Calls that the engine `signal` should have delayed and could not, safely.
    pub missed: u64,
    /// Sum of the delays as they were.
    pub delivered_ns: Nanos,
    /// The functions, most delayed first, then most called, then by name.
    pub functions: Vec<FunctionReport>,
}

/// What was counted for one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionReport {
    /// Symbol, qualified name, or `provider:name`.
    pub name: String,
    /// The file that it lies in, as the process sees it.
    pub file: PathBuf,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// Calls seen.
    pub calls: u64,
    /// Calls delayed.
    pub delayed: u64,
    /// Calls that the engine `signal` should have delayed and could not, safely.
    pub missed: u64,
    /// Sum of the delays asked for.
    pub requested_ns: Nanos,
    /// Sum of the delays as they were.
    pub delivered_ns: Nanos,
    /// Its times, where calls were timed.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub times: Option<TimesReport>,
}

impl FunctionReport {
    /// A function with its counters.
    pub fn new(name: String, file: PathBuf, line: Option<u32>, stats: FunctionStats) -> Self {
        Self {
            name,
            file,
            line,
            calls: stats.calls,
            delayed: stats.delayed,
            missed: stats.missed,
            requested_ns: Nanos(stats.requested_ns),
            delivered_ns: Nanos(stats.delivered_ns),
            times: None,
        }
    }

    /// The same with its times, where calls were timed.
    #[must_use]
    pub fn with_times(self, times: Option<FunctionTimes>) -> Self {
        Self { times: times.map(|times| TimesReport::new(self.calls, times)), ..self }
    }
}

impl TargetReport {
    /// A target with its functions, of which every call was to be delayed. How they became visible, and what
    /// that cost, is not said.
    pub fn new(
        target: &Target,
        engine: EngineKind,
        requested_ns: Nanos,
        functions: Vec<FunctionReport>,
    ) -> Self {
        let mut report = Self {
            id: target.id.clone(),
            kind: target.kind,
            pattern: target.pattern.clone(),
            engine,
            entry: None,
            floor_ns: Nanos(0),
            requested_ns,
            frequency: 1,
            calls: 0,
            delayed: 0,
            missed: 0,
            delivered_ns: Nanos(0),
            functions: Vec::new(),
        };
        report.set_functions(functions);
        report
    }

    /// Fills in the functions, their order and the sums over them.
    pub fn set_functions(&mut self, mut functions: Vec<FunctionReport>) {
        functions.sort_by(|a, b| {
            (b.delivered_ns, b.calls, &a.name, &a.file).cmp(&(a.delivered_ns, a.calls, &b.name, &b.file))
        });
        self.calls = functions.iter().map(|function| function.calls).sum();
        self.delayed = functions.iter().map(|function| function.delayed).sum();
        self.missed = functions.iter().map(|function| function.missed).sum();
        self.delivered_ns = Nanos(functions.iter().map(|function| function.delivered_ns.0).sum());
        self.functions = functions;
    }
}

fn as_nanos<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    Nanos::from(*duration).serialize(serializer)
}
