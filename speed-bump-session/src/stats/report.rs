//! The report of a session: one record, of which every output is a rendering.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;
use speed_bump_abi::{FunctionStats, Histogram, times::FunctionTimes};
use speed_bump_experiment::report::session::{RecordedFunction, RecordedSession, RecordedTarget};

use super::{
    callers::CallerReport,
    inexact::{Delays, Inexact, Waited, inexact},
    median::{interrupted, median},
    times::TimesReport,
};
use crate::{
    engine::EngineKind,
    probe::{cost::Floors, plan::Entry},
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
    /// How far and why the delays were too long on average, all targets together; `None` where they were not,
    /// by a tenth.
    pub inexact: Option<Inexact>,
    /// What went wrong without ending the session.
    pub warnings: Vec<String>,
    /// Those of them that say why calls were missed: what was counted is less than what there was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missed_calls: Vec<String>,
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
    /// The same for calls that come after a sleep, or much other code.
    pub cold_floor_ns: Nanos,
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
    /// The delay in the middle; `None` where it is not known.
    pub median_ns: Option<Nanos>,
    /// Delays that were interrupted when they were over; `None` where that is not known.
    pub interrupted: Option<u64>,
    /// How far and why the delays were too long on average; `None` where they were not, by a tenth.
    pub inexact: Option<Inexact>,
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
    /// The delay in the middle; `None` where it is not known.
    pub median_ns: Option<Nanos>,
    /// Delays that were interrupted when they were over; `None` where that is not known.
    pub interrupted: Option<u64>,
    /// How far and why the delays were too long on average; `None` where they were not, by a tenth.
    pub inexact: Option<Inexact>,
    /// How long each of them was, as far as that is known.
    #[serde(skip)]
    pub histogram: Option<Box<Histogram>>,
    /// Its times, where calls were timed.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub times: Option<TimesReport>,
    /// Who called it, most calls first; `None` where that was not recorded, or nobody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callers: Option<Vec<CallerReport>>,
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
            median_ns: None,
            interrupted: None,
            inexact: None,
            histogram: None,
            times: None,
            callers: None,
        }
    }

    /// The same with its times, where calls were timed.
    #[must_use]
    pub fn with_times(self, times: Option<FunctionTimes>) -> Self {
        Self { times: times.map(|times| TimesReport::new(self.calls, times)), ..self }
    }

    /// The same with who called it, where that is known.
    #[must_use]
    pub fn with_callers(self, callers: Option<Vec<CallerReport>>) -> Self {
        Self { callers, ..self }
    }

    /// The same with what is known of how long its delays were.
    #[must_use]
    pub fn with_histogram(self, histogram: Option<&Histogram>) -> Self {
        Self {
            median_ns: histogram.and_then(|of| median(of, self.delayed, self.requested_ns)),
            interrupted: histogram.map(interrupted),
            histogram: histogram.copied().map(Box::new),
            ..self
        }
    }

    fn delays(&self, floors: Floors) -> Delays<'_> {
        Delays {
            delayed: self.delayed,
            requested: self.requested_ns,
            delivered: self.delivered_ns,
            histogram: self.histogram.as_deref(),
            floors,
        }
    }
}

/// Adds up what functions have.
fn sum(functions: &[FunctionReport], of: impl Fn(&FunctionReport) -> u64) -> u64 {
    functions.iter().fold(0, |sum, function| sum.saturating_add(of(function)))
}

/// The histogram of several functions' delays.
fn together<'a>(functions: impl Iterator<Item = &'a FunctionReport>) -> Option<Histogram> {
    let mut histograms = functions.filter_map(|function| function.histogram.as_deref());
    let mut all = *histograms.next()?;
    histograms.for_each(|histogram| all += *histogram);
    Some(all)
}

impl SessionReport {
    /// Says where delays were too long on average. `waited`: what was waited for, where that is known.
    pub fn judge(&mut self, waited: Option<&Waited>) {
        let functions = self.targets.iter().flat_map(|target| &target.functions);
        let too_long = functions
            .clone()
            .fold(0_u64, |sum, of| sum.saturating_add(of.delivered_ns.0.saturating_sub(of.requested_ns.0)));
        let too_long = Nanos(too_long);
        let histogram = together(functions);
        let mut all = Delays {
            delayed: 0,
            requested: Nanos(0),
            delivered: Nanos(0),
            histogram: histogram.as_ref(),
            floors: Floors::default(),
        };
        for target in &mut self.targets {
            let floors = Floors { warm: target.floor_ns, cold: target.cold_floor_ns };
            for function in &mut target.functions {
                function.inexact = inexact(&function.delays(floors), waited, too_long);
            }
            let histogram = together(target.functions.iter());
            let of_target = Delays {
                delayed: target.delayed,
                requested: Nanos(sum(&target.functions, |function| function.requested_ns.0)),
                delivered: target.delivered_ns,
                histogram: histogram.as_ref(),
                floors,
            };
            target.inexact = inexact(&of_target, waited, too_long);
            all.delayed = all.delayed.saturating_add(of_target.delayed);
            all.requested = Nanos(all.requested.0.saturating_add(of_target.requested.0));
            all.delivered = Nanos(all.delivered.0.saturating_add(of_target.delivered.0));
        }
        self.inexact = inexact(&all, waited, too_long).map(|all| {
            // The floors are the targets': of the causes, that of most of what was too long.
            let excess =
                |function: &&FunctionReport| function.delivered_ns.0.saturating_sub(function.requested_ns.0);
            let functions = self.targets.iter().flat_map(|target| &target.functions);
            let worst = functions.filter(|function| function.inexact.is_some()).max_by_key(excess);
            let cause = worst.and_then(|function| function.inexact).map_or(all.cause, |worst| worst.cause);
            Inexact { cause, ..all }
        });
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
            cold_floor_ns: Nanos(0),
            requested_ns,
            frequency: 1,
            calls: 0,
            delayed: 0,
            missed: 0,
            delivered_ns: Nanos(0),
            median_ns: None,
            interrupted: None,
            inexact: None,
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
        self.calls = sum(&functions, |function| function.calls);
        self.delayed = sum(&functions, |function| function.delayed);
        self.missed = sum(&functions, |function| function.missed);
        self.delivered_ns = Nanos(sum(&functions, |function| function.delivered_ns.0));
        let requested_ns = Nanos(sum(&functions, |function| function.requested_ns.0));
        let histogram = together(functions.iter());
        self.median_ns = histogram.as_ref().and_then(|of| median(of, self.delayed, requested_ns));
        self.interrupted = histogram.as_ref().map(interrupted);
        self.functions = functions;
    }
}

fn as_nanos<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    Nanos::from(*duration).serialize(serializer)
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
