//! What slices have besides the time of a unit: how latencies spread, and what further metrics did.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// How the latencies of a slice spread: within 3.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of the units had this latency at most.
    pub p50_ns: Nanos,
    /// 99 of 100 had. Of fewer than 100 units it is that of the slowest.
    pub p99_ns: Nanos,
}

/// What a further metric did in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum MetricReading {
    /// Something that is counted.
    Counter {
        /// Over how long: it is read right after the unit's metric.
        span_ns: Nanos,
        /// How many came.
        units: f64,
        /// How long those took in all, in ns; `None` where that is not measured.
        latency_ns: Option<f64>,
        /// How those times spread; `None` where that is not known.
        quantiles: Option<Quantiles>,
    },
    /// Something that goes up and down.
    Gauge {
        /// Its mean.
        mean: f64,
    },
}

/// A number that a metric has for a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Units in a second.
    Rate,
    /// The mean latency, in ns.
    Latency,
    /// The latency that half of the units had at most, in ns.
    P50,
    /// That which 99 of 100 had at most, in ns.
    P99,
    /// The mean of a gauge.
    Mean,
}

impl Quantity {
    /// What people call it.
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
    /// One of them; `None` of a quantity that is none.
    pub fn of(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::P50 => Some(self.p50_ns.0 as f64),
            Quantity::P99 => Some(self.p99_ns.0 as f64),
            Quantity::Rate | Quantity::Latency | Quantity::Mean => None,
        }
    }
}

impl MetricReading {
    /// One of its numbers, where it has that.
    pub fn of(&self, quantity: Quantity) -> Option<f64> {
        match self {
            Self::Gauge { mean } => (quantity == Quantity::Mean).then_some(*mean),
            Self::Counter { span_ns, units, latency_ns, quantiles } => match quantity {
                Quantity::Rate => (span_ns.0 > 0).then(|| units * 1e9 / span_ns.0 as f64),
                Quantity::Latency => latency_ns.filter(|_| *units > 0.0).map(|latency| latency / units),
                Quantity::P50 | Quantity::P99 => quantiles.and_then(|of| of.of(quantity)),
                Quantity::Mean => None,
            },
        }
    }
}
