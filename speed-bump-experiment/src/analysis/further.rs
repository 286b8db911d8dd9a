//! How further metrics moved with the delays. There are no verdicts about them.
//!
//! The difference in each block between slices with a function's delays and slices without, over the
//! difference of the delay per unit, as for the time of a unit: with the same interval.

use std::path::PathBuf;

use serde::Serialize;

use super::{
    contrast::contrasts_of, estimate::estimate, factor::Factor, findings::CONFIDENCE, verdict::Verdict,
};
use crate::record::{By, Measured, PhaseKind, Quantity, Slice, Treatment};

/// The delay that moves are told for, as a share of a unit's time.
const DELAY: f64 = 0.01;

/// A number that was measured besides the time of a unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Further {
    /// The metric, as the command line has it.
    pub metric: String,
    /// Which of its numbers.
    pub quantity: Quantity,
    /// Its mean over slices without delays: per second, in ns, or of a gauge what that is in.
    pub without: f64,
    /// Of each function that matters.
    pub moves: Vec<Move>,
}

/// How a number moves when a function gets 1 % of a unit's time more delay per unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Move {
    /// The function, or group of functions.
    pub name: String,
    /// The file that it lies in; none of a group.
    pub file: Option<PathBuf>,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// By how much, in what the number is in; `None` where too few slices know it.
    pub by: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// All that was measured besides. A unit takes so many ns.
pub(super) fn further(measured: &Measured, unit: Option<f64>, factors: &[Factor]) -> Vec<Further> {
    let numbers = std::iter::once(None).chain(measured.metrics.iter().map(Some));
    let mut found = Vec::new();
    for metric in numbers {
        let quantities = [Quantity::Rate, Quantity::Latency, Quantity::P50, Quantity::P99, Quantity::Mean];
        for quantity in quantities {
            let value = |slice: &Slice| value(slice, metric.map(String::as_str), quantity, measured.by);
            let Some(without) = without(measured, value) else { continue };
            let moves = moves(measured, unit, factors, value);
            let metric = metric.unwrap_or(&measured.unit.source).clone();
            found.push(Further { metric, quantity, without, moves });
        }
    }
    found
}

/// What a slice has; `None` of a metric stands for the unit's own, of which what is compared is told already.
fn value(slice: &Slice, metric: Option<&str>, quantity: Quantity, by: By) -> Option<f64> {
    match metric {
        Some(name) => slice.metrics.get(name)?.get(quantity),
        None => match (quantity, by) {
            (Quantity::P50 | Quantity::P99, _) => slice.quantiles?.get(quantity),
            (Quantity::Latency, By::Throughput) => {
                slice.latency_ns.filter(|_| slice.units > 0.0).map(|latency| latency / slice.units)
            }
            (Quantity::Rate, By::Latency) => (slice.span() > 0.0).then(|| slice.units * 1e9 / slice.span()),
            (Quantity::Rate | Quantity::Latency | Quantity::Mean, _) => None,
        },
    }
}

/// The mean over slices without delays: those of the last phase, or where it did not come to that, of all.
fn without(measured: &Measured, value: impl Fn(&Slice) -> Option<f64>) -> Option<f64> {
    let mean = |is_of: &dyn Fn(&Slice) -> bool| {
        let slices = measured.slices.iter().filter(|slice| slice.counts() && is_of(slice));
        let controls = slices.filter(|slice| slice.treatment == Treatment::Control);
        let values: Vec<f64> = controls.filter_map(&value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    mean(&|slice| slice.phase == PhaseKind::Confirm).or_else(|| mean(&|_| true))
}

fn moves(
    measured: &Measured,
    unit: Option<f64>,
    factors: &[Factor],
    value: impl Fn(&Slice) -> Option<f64> + Copy,
) -> Vec<Move> {
    let of = |treatment: Treatment| {
        let factor = factors.iter().find(|of| of.treatment == Some(treatment))?;
        if factor.verdict != Verdict::Matters {
            return None;
        }
        let slices = measured.of_phase(PhaseKind::Confirm);
        let found = estimate(&contrasts_of(slices, treatment, u32::MAX, value), CONFIDENCE);
        let more = unit.map(|unit| unit * DELAY);
        let moved = |of: f64| more.map(|more| of * more);
        Some(Move {
            name: factor.name.clone(),
            file: factor.file.clone(),
            line: factor.line,
            by: found.and_then(|found| moved(found.sensitivity)),
            low: found.and_then(|found| moved(found.low)),
            high: found.and_then(|found| moved(found.high)),
        })
    };
    measured.treated().into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        analysis::findings::findings,
        record::{MetricReading, Quantiles},
        simulated::Function,
        testing,
        units::Nanos,
    };

    /// A service whose units take 10 ms, or 11 with a delay of 1 ms; errors grow with it, and the queue does.
    fn measured() -> Measured {
        let mut measured =
            testing::measured(&[("render", Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 }, 3_000)]);
        measured.census.end_ns = Nanos(50_000_000_000);
        measured.metrics = vec!["errors".to_owned(), "queue".to_owned()];
        measured.rules.planned_blocks = 40;
        for block in 0..40 {
            let noise = [0.0, 0.1, -0.1][block as usize % 3];
            for (treatment, units, delay) in [
                (Treatment::Control, 100.0, 0),
                (Treatment::Function { candidate: 0 }, 1000.0 / 11.0, 90_909_091),
            ] {
                let mut slice = testing::slice(PhaseKind::Confirm, block, treatment, units, delay);
                let is_delayed = delay > 0;
                slice.units += noise;
                let ms = if is_delayed { 12 } else { 10 };
                slice.quantiles =
                    Some(Quantiles { p50_ns: Nanos(ms * 900_000), p99_ns: Nanos(ms * 1_000_000) });
                let errors = MetricReading::Counter {
                    span_ns: Nanos(1_000_000_000),
                    units: if is_delayed { 5.0 } else { 0.0 },
                    latency_ns: None,
                    quantiles: None,
                };
                slice.metrics.insert("errors".to_owned(), errors);
                if block > 0 {
                    let queue = MetricReading::Gauge { mean: 3.0 + noise };
                    slice.metrics.insert("queue".to_owned(), queue);
                }
                measured.slices.push(slice);
            }
        }
        // One after the other.
        measured.slices =
            (1..).zip(measured.slices).map(|(second, slice)| testing::at(second, slice)).collect();
        measured
    }

    #[test]
    fn each_number_is_told_with_how_it_moved() {
        let found = findings(&measured());
        let of = |metric: &str, quantity| {
            let further = found.further.iter().find(|of| of.metric == metric && of.quantity == quantity);
            let further = further.unwrap();
            (further.without, further.moves.first().unwrap().clone())
        };
        let near = |a: f64, b: f64| (a - b).abs() < 0.02 * b.abs().max(0.01);
        // A delay of 1 ms a unit is 10 % of it: 1 % of it moves a tenth as much.
        let (without, moved) = of("errors", Quantity::Rate);
        assert!(without == 0.0 && near(moved.by.unwrap(), 0.5), "{moved:?}");
        assert_eq!(moved.name, "render");
        let (without, moved) = of("--progress */app.py:handle", Quantity::P99);
        assert!(without == 10e6 && near(moved.by.unwrap(), 0.2e6), "{moved:?}");
        let (without, moved) = of("queue", Quantity::Mean);
        assert!(near(without, 3.0) && moved.low.unwrap() <= 0.0 && moved.high.unwrap() >= 0.0, "{moved:?}");
        assert_eq!(found.further.len(), 4);
    }

    #[test]
    fn nothing_is_told_where_nothing_was_measured_besides() {
        let mut plain = measured();
        plain.metrics.clear();
        plain.slices.iter_mut().for_each(|slice| slice.quantiles = None);
        assert_eq!(findings(&plain).further, []);
    }
}
