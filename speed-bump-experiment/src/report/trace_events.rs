//! A sweep as trace events, for Perfetto, chrome://tracing and speedscope (Trace Event Format, JSON object
//! form).
//!
//! One track has the phases, one the slices with their delays, and a counter has the throughput. Times
//! are in us of `CLOCK_MONOTONIC`, so they align with other traces that use that clock (`trace-cmd record -C
//! mono`, `perf record -k mono`).

use serde::Serialize;
use serde_json::{Value, json};

use super::words::{candidate_name, name_and_place_of, phase_name};
use crate::{
    record::{Experiment, Mark, Treatment},
    units::Nanos,
};

/// Numbers of process and tracks.
const PROCESS: u32 = 1;
const PHASES: u32 = 1;
const SLICES: u32 = 2;

/// The whole trace.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    trace_events: Vec<Value>,
    display_time_unit: &'static str,
    other_data: Value,
}

/// All phases and slices of an experiment.
pub fn trace(Experiment { measured, findings }: &Experiment) -> Trace {
    let named = |what: &str, track: u32, name: &str| {
        let arguments = json!({ "name": name });
        json!({ "ph": "M", "name": what, "pid": PROCESS, "tid": track, "args": arguments })
    };
    let mut events = vec![
        named("process_name", PHASES, "speed-bump-ebpf sweep"),
        named("thread_name", PHASES, "phases"),
        named("thread_name", SLICES, "slices"),
    ];
    events.extend(measured.phases.iter().map(|phase| {
        let arguments = json!({ "outcome": phase.outcome });
        event(phase_name(phase.kind), "phase", PHASES, (phase.start_ns, phase.end_ns), arguments)
    }));
    for slice in &measured.slices {
        let functions: Vec<Value> = slice
            .doses
            .iter()
            .map(|(number, dose)| {
                let of = measured.candidates.get(*number as usize);
                let name = of.map(|of| name_and_place_of(&candidate_name(of), Some(&of.file), of.line));
                json!({ "function": name, "delay_ns": dose.0 })
            })
            .collect();
        let name = match (slice.treatment, functions.as_slice()) {
            (Treatment::Control, _) => "no delays".to_owned(),
            (Treatment::Placebo, _) => "delays of zero".to_owned(),
            (_, [one]) => one["function"].as_str().unwrap_or("a function").to_owned(),
            (_, several) => format!("{} functions", several.len()),
        };
        let per_second = slice.rate();
        let arguments = json!({
            "phase": phase_name(slice.phase),
            "block": slice.block,
            "delays": functions,
            "units": slice.units,
            "units_per_second": per_second,
            "dropped": slice.marks.first().map(|mark| why(*mark)),
        });
        events.push(event(&name, "slice", SLICES, (slice.start_ns, slice.end_ns), arguments));
        events.push(json!({
            "ph": "C", "name": "units per second", "pid": PROCESS, "ts": us(slice.start_ns),
            "args": { "units": per_second },
        }));
    }
    Trace {
        trace_events: events,
        display_time_unit: "ms",
        other_data: json!({
            "verdict": findings.verdict,
            "seed": measured.seed,
            "clock": "CLOCK_MONOTONIC",
            "unit": measured.unit.name,
        }),
    }
}

/// A complete event.
fn event(name: &str, category: &str, track: u32, (start, end): (Nanos, Nanos), arguments: Value) -> Value {
    json!({
        "ph": "X", "name": name, "cat": category, "pid": PROCESS, "tid": track,
        "ts": us(start), "dur": us(Nanos(end.0.saturating_sub(start.0))), "args": arguments,
    })
}

fn us(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

fn why(mark: Mark) -> &'static str {
    match mark {
        Mark::Late => "late",
        Mark::Guarded => "guarded",
        Mark::Unsettled => "unsettled",
        Mark::Load => "load",
    }
}
