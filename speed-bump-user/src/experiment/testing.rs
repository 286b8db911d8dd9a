//! Records for tests.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    record::{
        By, Candidate, Census, Delivered, Measured, PhaseKind, Rules, SCHEMA, Slice, Treatment, Unit,
        Versions,
    },
    simulated::Function,
};
use crate::{targets::TargetKind, units::Nanos};

/// A slice of a second with so many units, and so much delay of candidate 0.
pub(crate) fn slice(phase: PhaseKind, block: u32, treatment: Treatment, units: f64, delay: u64) -> Slice {
    let delivered =
        Delivered { candidate: 0, calls: units as u64, asked_ns: Nanos(delay), delivered_ns: Nanos(delay) };
    let is_delayed = delay > 0;
    Slice {
        phase,
        block,
        treatment,
        start_ns: Nanos(1_000_000_000),
        end_ns: Nanos(2_000_000_000),
        doses: if is_delayed { vec![(0, Nanos(delay / (units as u64).max(1)))] } else { Vec::new() },
        delivered: if is_delayed { vec![delivered] } else { Vec::new() },
        units,
        latency_ns: None,
        quantiles: None,
        idle_ns: None,
        metrics: BTreeMap::new(),
        guarded: false,
        marks: Vec::new(),
    }
}

/// The same slice at another second.
pub(crate) fn at(second: u64, slice: Slice) -> Slice {
    let start_ns = Nanos(second * 1_000_000_000);
    Slice { start_ns, end_ns: start_ns + Nanos(1_000_000_000), ..slice }
}

/// A record before the first slice: a service whose units take 1 ms, with these functions and their own times
/// per unit in us.
pub(crate) fn measured(functions: &[(&str, Function, u64)]) -> Measured {
    let units = 5_000.0;
    let candidate = |(name, function, own_us): &(&str, Function, u64)| Candidate {
        name: (*name).to_owned(),
        file: PathBuf::from("/srv/app.py"),
        line: Some(7),
        kind: TargetKind::Python,
        calls: (function.calls * units) as u64,
        own_ns: Some(Nanos(own_us * 1_000 * units as u64)),
        floor_ns: Nanos(40),
        sampled: None,
        sharing: None,
    };
    Measured {
        schema: SCHEMA.to_owned(),
        seed: 7,
        versions: Versions::default(),
        kernel: "6.18".to_owned(),
        cpu: "a processor".to_owned(),
        command: vec!["speed-bump-ebpf".to_owned(), "sweep".to_owned()],
        rules: Rules {
            worth: 0.01,
            threshold: 0.1,
            max_slowdown: 0.2,
            closed_loop: false,
            planned_blocks: 0,
        },
        unit: Unit { name: "request".to_owned(), source: "--progress */app.py:handle".to_owned() },
        metrics: Vec::new(),
        by: By::Throughput,
        candidates: functions.iter().map(candidate).collect(),
        groups: Vec::new(),
        census: Census { start_ns: Nanos(0), end_ns: Nanos(5_000_000_000), units, slowdown: None },
        sampling: None,
        around: None,
        phases: Vec::new(),
        slices: Vec::new(),
        aborted: None,
        guard: None,
    }
}
