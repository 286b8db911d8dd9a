//! Further numbers of slices: quantiles of latencies, and further metrics.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Quantiles of the latencies of a slice, exact to 3.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of the units had at most this latency.
    pub p50_ns: Nanos,
    /// 99 of 100 units had at most this latency. With fewer than 100 units, this is the latency of the
    /// slowest one.
    pub p99_ns: Nanos,
}

/// A further metric in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum MetricReading {
    /// A counter.
    Counter {
        /// The time between its readings: it is read right after the unit's metric.
        span_ns: Nanos,
        /// How much the counter grew.
        units: f64,
        /// The total latency of these units, in ns; `None` if not measured.
        latency_ns: Option<f64>,
        /// Quantiles of the latencies; `None` if unknown.
        quantiles: Option<Quantiles>,
    },
    /// A value that goes up and down.
    Gauge {
        /// Mean of the readings in the slice, in the unit of the gauge.
        mean: f64,
    },
}

/// A number of a metric in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Units per second.
    Rate,
    /// The mean latency, in ns.
    Latency,
    /// The median latency, in ns.
    P50,
    /// The 99th percentile of latency, in ns.
    P99,
    /// The mean of a gauge.
    Mean,
}

impl Quantity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Latency => "latency",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Mean => "mean",
        }
    }
}

impl Quantiles {
    /// The quantile for a quantity; `None` for other quantities.
    pub fn get(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::P50 => Some(self.p50_ns.0 as f64),
            Quantity::P99 => Some(self.p99_ns.0 as f64),
            Quantity::Rate | Quantity::Latency | Quantity::Mean => None,
        }
    }
}

impl MetricReading {
    /// The number for a quantity, if the metric has it.
    pub fn get(&self, quantity: Quantity) -> Option<f64> {
        match self {
            Self::Gauge { mean } => (quantity == Quantity::Mean).then_some(*mean),
            Self::Counter { span_ns, units, latency_ns, quantiles } => match quantity {
                Quantity::Rate => (span_ns.0 > 0).then(|| units * 1e9 / span_ns.0 as f64),
                Quantity::Latency => latency_ns.filter(|_| *units > 0.0).map(|latency| latency / units),
                Quantity::P50 | Quantity::P99 => quantiles.and_then(|quantiles| quantiles.get(quantity)),
                Quantity::Mean => None,
            },
        }
    }
}
