//! Slices as trace events: what viewers want of them, and that the times are those of the JSON.

use std::{fs, time::Duration};

use serde_json::Value;
use speed_bump_testing::tool;

use crate::records::{HOSTILE_RECORD, written};

#[test]
fn each_slice_is_an_event_with_its_delays() {
    let (folder, json) = written(&HOSTILE_RECORD);
    let to = folder.path().join("trace.json");
    let arguments = ["report", json.to_str().unwrap(), "--trace-events", to.to_str().unwrap()];
    let run = tool::run(&arguments, Duration::from_secs(60)).unwrap();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    let trace: Value = serde_json::from_str(&fs::read_to_string(&to).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    // What the format asks of each kind of event.
    for event in events {
        let has = |keys: &[&str]| keys.iter().all(|key| !event[*key].is_null());
        match event["ph"].as_str().unwrap() {
            "X" => assert!(has(&["name", "cat", "ts", "dur", "pid", "tid"]), "{event}"),
            "C" => assert!(has(&["name", "ts", "pid", "args"]), "{event}"),
            "M" => assert!(has(&["name", "pid", "args"]), "{event}"),
            other => unreachable!("{other}"),
        }
    }
    let of = |category: &str| events.iter().filter(|of| of["cat"] == category).collect::<Vec<_>>();
    let measured = &HOSTILE_RECORD.measured;
    assert_eq!(of("phase").len(), measured.phases.len());
    let slices = of("slice");
    assert_eq!(slices.len(), measured.slices.len());
    for (event, slice) in slices.iter().zip(&measured.slices) {
        let near = |key: &str, ns: u64| (event[key].as_f64().unwrap() - ns as f64 / 1e3).abs() < 1e-3;
        assert!(near("ts", slice.start_ns.0) && near("dur", slice.end_ns.0 - slice.start_ns.0), "{event}");
        let delays = event["args"]["delays"].as_array().unwrap();
        assert_eq!(delays.len(), slice.doses.len());
        for (delay, (_, dose)) in delays.iter().zip(&slice.doses) {
            assert_eq!(delay["delay_ns"], dose.0);
        }
    }
    // Events of a track do not overlap: viewers would nest them.
    let ends = slices.iter().map(|of| of["ts"].as_f64().unwrap() + of["dur"].as_f64().unwrap());
    let begins = slices.iter().skip(1).map(|of| of["ts"].as_f64().unwrap());
    assert!(ends.zip(begins).all(|(end, begin)| end <= begin + 1e-3));
}
