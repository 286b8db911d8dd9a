//! Records of simulated services.

use std::{path::PathBuf, time::Duration};

use super::{Function, Noise, Simulated};
use crate::{
    TargetKind,
    record::{By, Candidate, Census, Measured, Origin, Rules, SCHEMA, Unit, Versions},
    run::{self, Options},
    units::Nanos,
};

/// Units of the census.
const UNITS: f64 = 5_000.0;

/// A record before the first slice: functions with names and own times per unit in ns, and the time per unit
/// in ns.
pub fn record(unit: f64, functions: &[(String, Function, f64)], seed: u64) -> Measured {
    let candidate = |(name, function, own): &(String, Function, f64)| Candidate {
        name: name.clone(),
        file: PathBuf::from("/srv/app.py"),
        line: Some(7),
        caller: None,
        kind: TargetKind::Python,
        origin: Origin::Service,
        calls: (function.calls * UNITS) as u64,
        own_ns: Some(Nanos((own * UNITS) as u64)),
        waited_ns: None,
        floor_ns: Nanos(40),
        sampled: None,
        sharing: None,
    };
    Measured {
        schema: SCHEMA.to_owned(),
        seed,
        versions: Versions::default(),
        kernel: "6.18".to_owned(),
        cpu: "a processor".to_owned(),
        command: vec!["speed-bump-ebpf".to_owned(), "sweep".to_owned()],
        rules: Rules { worth: 0.01, threshold: 0.1, max_slowdown: 0.2, min_chips: 0, closed_loop: true },
        unit: Unit { name: "request".to_owned(), source: "--progress */app.py:handle".to_owned() },
        inner_unit: None,
        metrics: Vec::new(),
        by: By::Throughput,
        candidates: functions.iter().map(candidate).collect(),
        groups: Vec::new(),
        arms: Vec::new(),
        census: Census {
            start_ns: Nanos(0),
            end_ns: Nanos((UNITS * unit) as u64),
            units: UNITS,
            slowdown: None,
        },
        sampling: None,
        waits: Vec::new(),
        around: None,
        threads: Vec::new(),
        missed_calls: Vec::new(),
        phases: Vec::new(),
        slices: Vec::new(),
        load_changes: Vec::new(),
        load: None,
        aborted: None,
        invalid: None,
        guard: None,
    }
}

/// A sweep of these functions that takes `total` in simulated time.
pub fn sweep(
    unit: f64,
    functions: &[(String, Function, f64)],
    noise: Noise,
    total: Duration,
    seed: u64,
) -> Measured {
    sweep_of(record(unit, functions, seed), unit, functions, noise, total)
}

/// A sweep that continues this record, for `total` in simulated time.
pub fn sweep_of(
    record: Measured,
    unit: f64,
    functions: &[(String, Function, f64)],
    noise: Noise,
    total: Duration,
) -> Measured {
    let of = functions.iter().map(|(_, function, _)| *function).collect();
    let mut service = Simulated::new(unit, of, noise, record.seed.wrapping_mul(7_919));
    let options = Options { quick: true, ..Options::new(total) };
    run::run(&mut service, &options, record, &mut |_, _| {})
}
