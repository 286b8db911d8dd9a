//! The report of a session. The report is one record, and we make all outputs from it.

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

/// Name and version of the JSON form. An incompatible change gets another version.
pub const SCHEMA: &str = "speed-bump/session/1";

/// The counts of a session.
#[derive(Clone, Debug, Serialize)]
pub struct SessionReport {
    /// The value of [`SCHEMA`].
    pub schema: &'static str,
    /// The attached process, or the first one of several.
    pub pid: Pid,
    /// All processes that were named on the command line.
    pub pids: Vec<Pid>,
    /// The number of processes that the session covered, including children.
    pub processes: usize,
    /// The engine.
    pub engine: EngineKind,
    /// The time from attach to detach.
    #[serde(rename = "duration_ns", serialize_with = "as_nanos")]
    pub duration: Duration,
    /// A record for each line of the targets file, in order.
    pub targets: Vec<TargetReport>,
    /// Whether delays exceeded their requests on average, over all targets, and why; `None` if by less than a
    /// tenth.
    pub inexact: Option<Inexact>,
    /// Problems that did not end the session.
    pub warnings: Vec<String>,
    /// Warnings that say why the session missed calls. If there are any, there were more calls than the
    /// counts say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missed_calls: Vec<String>,
}

/// The counts of a target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// The target's `id=`, or its pattern and caller.
    pub id: String,
    /// The kind of function that the target selects.
    pub kind: TargetKind,
    /// The patterns, as written.
    pub pattern: String,
    /// The pattern of `caller=`, as written. Absent if the target selects calls from everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The engine.
    pub engine: EngineKind,
    /// How calls became visible. Absent if the target selected nothing.
    pub entry: Option<Entry>,
    /// The floor at the target's sites: the largest, if they differ.
    pub floor_ns: Nanos,
    /// The floor for calls after a sleep, or after much other code.
    pub cold_floor_ns: Nanos,
    /// The requested delay per trigger.
    pub requested_ns: Nanos,
    /// The number of calls per trigger.
    pub frequency: u64,
    /// The number of calls.
    pub calls: u64,
    /// The number of delayed calls.
    pub delayed: u64,
    /// The number of calls that the engine `signal` should have delayed, but could not delay safely.
    pub missed: u64,
    /// The number of calls whose delay the session's bound left out.
    #[serde(skip_serializing_if = "is_none")]
    pub bounded: u64,
    /// The sum of the delivered delays.
    pub delivered_ns: Nanos,
    /// The median delay; `None` if unknown.
    pub median_ns: Option<Nanos>,
    /// The number of delays that were interrupted near their end; `None` if unknown.
    pub interrupted: Option<u64>,
    /// Whether delays exceeded their requests on average, and why; `None` if by less than a tenth.
    pub inexact: Option<Inexact>,
    /// The functions, sorted by delivered delays, then by calls (the greatest first), and then by name.
    pub functions: Vec<FunctionReport>,
}

/// The counts of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionReport {
    /// The symbol, the qualified name, or `provider:name`.
    pub name: String,
    /// The function's file, as the process sees it.
    pub file: PathBuf,
    /// The line of the definition, if known.
    pub line: Option<u32>,
    /// The number of calls.
    pub calls: u64,
    /// The number of delayed calls.
    pub delayed: u64,
    /// The number of calls that the engine `signal` should have delayed, but could not delay safely.
    pub missed: u64,
    /// The number of calls whose delay the session's bound left out.
    #[serde(skip_serializing_if = "is_none")]
    pub bounded: u64,
    /// The sum of the requested delays.
    pub requested_ns: Nanos,
    /// The sum of the delivered delays.
    pub delivered_ns: Nanos,
    /// The median delay; `None` if unknown.
    pub median_ns: Option<Nanos>,
    /// The number of delays that were interrupted near their end; `None` if unknown.
    pub interrupted: Option<u64>,
    /// Whether delays exceeded their requests on average, and why; `None` if by less than a tenth.
    pub inexact: Option<Inexact>,
    /// The histogram of the delays, if known.
    #[serde(skip)]
    pub histogram: Option<Box<Histogram>>,
    /// The function's times, if the session timed calls.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub times: Option<TimesReport>,
    /// The function's callers, with the most calls first. `None` if nobody recorded callers, or there were
    /// none.
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
            bounded: stats.bounded,
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

    /// Adds the function's times, if the session timed calls.
    #[must_use]
    pub fn with_times(self, times: Option<FunctionTimes>) -> Self {
        Self { times: times.map(|times| TimesReport::new(self.calls, times)), ..self }
    }

    /// Adds its callers, if known.
    #[must_use]
    pub fn with_callers(self, callers: Option<Vec<CallerReport>>) -> Self {
        Self { callers, ..self }
    }

    /// Adds the histogram of the function's delays, if known.
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

/// The sum of a value over functions.
fn sum(functions: &[FunctionReport], of: impl Fn(&FunctionReport) -> u64) -> u64 {
    functions.iter().fold(0, |sum, function| sum.saturating_add(of(function)))
}

/// Leaves the field out of sessions without a bound, which have no such calls.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// The sum of the histograms of several functions.
fn together<'a>(functions: impl Iterator<Item = &'a FunctionReport>) -> Option<Histogram> {
    let mut histograms = functions.filter_map(|function| function.histogram.as_deref());
    let mut all = *histograms.next()?;
    histograms.for_each(|histogram| all += *histogram);
    Some(all)
}

impl SessionReport {
    /// Sets `inexact` where delays were too long on average. `waited` is what the session waited for, if
    /// known.
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
            // Each target has its own floors. So the cause for the session is the cause for the function with
            // the largest excess.
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
    /// The report of a target with these functions, where every call was to be delayed. Does not set how the
    /// calls became visible, nor the floors.
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
            caller: target.caller_pattern().map(str::to_owned),
            engine,
            entry: None,
            floor_ns: Nanos(0),
            cold_floor_ns: Nanos(0),
            requested_ns,
            frequency: 1,
            calls: 0,
            delayed: 0,
            missed: 0,
            bounded: 0,
            delivered_ns: Nanos(0),
            median_ns: None,
            interrupted: None,
            inexact: None,
            functions: Vec::new(),
        };
        report.set_functions(functions);
        report
    }

    /// Sets the functions, sorted, and the sums over them.
    pub fn set_functions(&mut self, mut functions: Vec<FunctionReport>) {
        functions.sort_by(|a, b| {
            (b.delivered_ns, b.calls, &a.name, &a.file).cmp(&(a.delivered_ns, a.calls, &b.name, &b.file))
        });
        self.calls = sum(&functions, |function| function.calls);
        self.delayed = sum(&functions, |function| function.delayed);
        self.missed = sum(&functions, |function| function.missed);
        self.bounded = sum(&functions, |function| function.bounded);
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
