//! Records for tests.

use std::collections::BTreeMap;

use super::{
    record::{Delivered, Measured, PhaseKind, Slice, Treatment},
    simulated::{self, Function},
};
use crate::units::Nanos;

/// A slice of a second with this many units, and this delay of candidate 0.
pub(crate) fn slice(phase: PhaseKind, block: u32, treatment: Treatment, units: f64, delay: u64) -> Slice {
    let delivered = Delivered {
        candidate: 0,
        calls: units as u64,
        asked_ns: Nanos(delay),
        delivered_ns: Nanos(delay),
        bounded_ns: Nanos(0),
    };
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
        latencies: Vec::new(),
        idle_ns: None,
        failed: None,
        metrics: BTreeMap::new(),
        guarded: false,
        marks: Vec::new(),
    }
}

/// This slice at another time, in seconds.
pub(crate) fn at(second: u64, slice: Slice) -> Slice {
    let start_ns = Nanos(second * 1_000_000_000);
    Slice { start_ns, end_ns: start_ns + Nanos(1_000_000_000), ..slice }
}

/// A record before the first slice: a service whose units take 1 ms, with these functions and their own times
/// per unit in us. It is unknown who sets its throughput.
pub(crate) fn measured(functions: &[(&str, Function, u64)]) -> Measured {
    let named = |(name, function, own_us): &(&str, Function, u64)| {
        ((*name).to_owned(), *function, *own_us as f64 * 1e3)
    };
    let functions: Vec<_> = functions.iter().map(named).collect();
    let mut measured = simulated::record(1e6, &functions, 7);
    measured.rules.closed_loop = false;
    measured
}
