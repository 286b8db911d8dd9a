//! Answers about a session.

use serde::Serialize;

use crate::{
    control::RequestError,
    prepare::{Plans, Prepared, notice::Notice},
    session::{
        events::{Events, Happened},
        handle::Outcome,
        run::Ended,
        snapshot::Snapshot,
    },
    stats::{median::interrupted, report::SessionReport, times::TimesReport},
    targets::TargetKind,
    units::{Nanos, Pid},
};

/// The plan of a prepared session.
#[derive(Debug, Serialize)]
pub(super) struct Planned<'a> {
    processes: Vec<ProcessPlan>,
    targets: Vec<TargetPlan<'a>>,
    notices: &'a [Notice],
}

#[derive(Debug, Serialize)]
struct ProcessPlan {
    pid: Pid,
    /// Functions that are known now; with Python more may become known later.
    functions: usize,
    sites: usize,
}

#[derive(Debug, Serialize)]
struct TargetPlan<'a> {
    /// Its number, for `set`.
    target: u32,
    id: &'a str,
    line: usize,
    kind: TargetKind,
    pattern: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    delay_ns: Nanos,
    frequency: u64,
}

impl<'a> Planned<'a> {
    pub(super) fn new(prepared: &'a Prepared) -> Self {
        let processes = match &prepared.plans {
            Plans::Bpf(plans) => plans
                .processes
                .iter()
                .map(|(process, plan)| ProcessPlan {
                    pid: process.pid(),
                    functions: plan.functions.len(),
                    sites: plan.sites.len(),
                })
                .collect(),
            Plans::Kmod(plan) => {
                let functions = plan.found().functions.len();
                vec![ProcessPlan { pid: plan.process().pid(), functions, sites: functions }]
            }
        };
        let target = |(index, target): (crate::targets::TargetIndex, &'a crate::targets::Target)| {
            let dose = prepared.settings.policies.dose(index);
            TargetPlan {
                target: index.0,
                id: &target.id,
                line: target.line,
                kind: target.kind,
                pattern: &target.pattern,
                caller: target.caller_pattern(),
                delay_ns: dose.delay,
                frequency: dose.frequency,
            }
        };
        Self { processes, targets: prepared.targets.iter().map(target).collect(), notices: &prepared.notices }
    }
}

/// Everything is attached.
#[derive(Debug, Serialize)]
pub(super) struct Attached {
    pub(super) started: bool,
}

/// A snapshot of the counters.
#[derive(Debug, Serialize)]
pub(super) struct SnapshotAnswer<'a> {
    at_ns: Nanos,
    functions: Vec<FunctionCounts<'a>>,
}

#[derive(Debug, Serialize)]
struct FunctionCounts<'a> {
    /// Its number in the session, for `set`.
    function: u32,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    names: Option<Names<'a>>,
    calls: u64,
    delayed: u64,
    missed: u64,
    requested_ns: u64,
    delivered_ns: u64,
    /// The median delay; null if unknown.
    median_ns: Option<Nanos>,
    /// Delays that were interrupted at their end; null if unknown.
    interrupted: Option<u64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    times: Option<TimesReport>,
}

#[derive(Debug, Serialize)]
struct Names<'a> {
    target: u32,
    name: &'a str,
    file: std::borrow::Cow<'a, str>,
    line: Option<u32>,
}

impl<'a> SnapshotAnswer<'a> {
    /// With the functions' names, or only with their numbers.
    pub(super) fn new(snapshot: &'a Snapshot, names: bool) -> Self {
        let functions = snapshot.known.iter().map(|(id, function)| {
            let stats = snapshot.of_id(id);
            let names = names.then(|| Names {
                target: function.target.0,
                name: &function.name,
                file: function.file.to_string_lossy(),
                line: function.line,
            });
            FunctionCounts {
                function: id.0,
                names,
                calls: stats.calls,
                delayed: stats.delayed,
                missed: stats.missed,
                requested_ns: stats.requested_ns,
                delivered_ns: stats.delivered_ns,
                median_ns: snapshot.median(id),
                interrupted: snapshot.histogram(id).map(interrupted),
                times: snapshot.times_of(id).map(|times| TimesReport::new(stats.calls, times)),
            }
        });
        Self { at_ns: snapshot.at, functions: functions.collect() }
    }
}

/// Events since the last request.
#[derive(Debug, Serialize)]
pub(super) struct EventsAnswer {
    events: Vec<Happened>,
    lost: u64,
}

impl EventsAnswer {
    pub(super) fn new(events: Events) -> Self {
        let Events { events, lost } = events;
        Self { events, lost }
    }
}

/// How a session ended.
#[derive(Debug, Serialize)]
pub(super) struct Stopped {
    ended: Ended,
    report: SessionReport,
}

impl Stopped {
    pub(super) fn new(outcome: Outcome) -> Result<Self, RequestError> {
        Ok(Self { ended: outcome.ended?, report: outcome.report })
    }
}
