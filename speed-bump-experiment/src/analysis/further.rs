//! How further metrics moved with the delays. There are no verdicts about them.
//!
//! A regression on the doses estimates the moves, as for the time per unit.

use std::path::PathBuf;

use serde::Serialize;

use super::{
    factor::{Estimate, Factor},
    findings::interval,
    replay::Replayed,
    verdict::Verdict,
};
use crate::record::{By, Measured, Quantity, Slice, Treatment};

/// Moves are reported for this much more delay, as a share of the time per unit.
const DELAY: f64 = 0.01;

/// A number that was measured beside the compared one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Further {
    /// The metric, as on the command line.
    pub metric: String,
    /// Which of its quantities.
    pub quantity: Quantity,
    /// Its mean over slices without delays: per second, in ns, or in the unit of a gauge.
    pub without: f64,
    /// How it moves with each function that matters.
    pub moves: Vec<Move>,
}

/// How a number moves when the added time of a function grows by 1 % of the time per unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Move {
    /// The function, or group of functions.
    pub name: String,
    /// Its file; `None` for a group.
    pub file: Option<PathBuf>,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// The change, in the unit of the number; `None` if too few slices have the number.
    pub by: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

impl Move {
    /// How a number moves with this function, from the estimate.
    fn new(factor: &Factor, found: Option<Estimate>) -> Self {
        Self {
            name: factor.name.clone(),
            file: factor.file.clone(),
            line: factor.line,
            by: found.map(|found| found.sensitivity * DELAY),
            low: found.map(|found| found.low * DELAY),
            high: found.map(|found| found.high * DELAY),
        }
    }
}

/// All numbers that were measured beside the compared one.
pub(super) fn further(measured: &Measured, replayed: &Replayed, factors: &[Factor]) -> Vec<Further> {
    // If a quantile is compared, a dose is the delay per unit that calls the function, and not the delay per
    // unit of all: then we report no moves.
    let is_of_all = measured.by.quantile().is_none();
    let matters = |factor: &Factor| factor.arm.filter(|_| is_of_all && factor.verdict == Verdict::Matters);
    let arms: Vec<usize> = factors.iter().filter_map(matters).collect();
    // All numbers have the same doses.
    let doses = (!arms.is_empty()).then(|| replayed.design.doses());
    let numbers = std::iter::once(None).chain(measured.metrics.iter().map(Some));
    let mut found = Vec::new();
    for metric in numbers {
        let quantities = [Quantity::Rate, Quantity::Latency, Quantity::P50, Quantity::P99, Quantity::Mean];
        for quantity in quantities {
            let value = |slice: &Slice| value(slice, metric.map(String::as_str), quantity, measured.by);
            let Some(without) = without(measured, value) else { continue };
            let moved = doses.as_ref().and_then(|doses| {
                let of_slice = |number: &usize| measured.slices.get(*number).and_then(value);
                let values: Vec<Option<f64>> = replayed.slices.iter().map(of_slice).collect();
                replayed.design.moves(doses, &values, &arms)
            });
            let of = |factor: &Factor| {
                let place = arms.iter().position(|of| Some(*of) == matters(factor))?;
                Some(Move::new(factor, moved.as_ref().map(|moved| interval(moved[place]))))
            };
            let moves = factors.iter().filter_map(of).collect();
            let metric = metric.unwrap_or(&measured.unit.source).clone();
            found.push(Further { metric, quantity, without, moves });
        }
    }
    found
}

/// The value of this quantity in a slice. If `metric` is `None`, this is a quantity of the unit's own metric.
/// Returns `None` for the quantity that the experiment compares, which has findings of its own.
fn value(slice: &Slice, metric: Option<&str>, quantity: Quantity, by: By) -> Option<f64> {
    match metric {
        Some(name) => slice.metrics.get(name)?.get(quantity),
        None => match (quantity, by) {
            (Quantity::P50 | Quantity::P99, _) => slice.quantiles?.get(quantity),
            (Quantity::Latency, by) if by != By::Latency => {
                slice.latency_ns.filter(|_| slice.units > 0.0).map(|latency| latency / slice.units)
            }
            (Quantity::Rate, by) if by != By::Throughput => {
                (slice.span() > 0.0).then(|| slice.units * 1e9 / slice.span())
            }
            (Quantity::Rate | Quantity::Latency | Quantity::Mean, _) => None,
        },
    }
}

/// The mean over slices without delays.
fn without(measured: &Measured, value: impl Fn(&Slice) -> Option<f64>) -> Option<f64> {
    let slices = measured.slices.iter().filter(|slice| slice.counts());
    let values: Vec<f64> =
        slices.filter(|slice| slice.treatment == Treatment::Control).filter_map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
