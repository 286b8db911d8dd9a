//! A slice: a time of constant doses, its purpose and its measurements.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{By, MetricReading, PhaseKind, Quantiles};
use crate::units::Nanos;

/// The purpose of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Treatment {
    /// No delays: a baseline.
    Control,
    /// Delays of zero. Only records from before chips have it.
    Placebo,
    /// Delays of one function.
    Function {
        /// Its number.
        candidate: u32,
    },
    /// Delays of the functions of a group.
    Group {
        /// Its number.
        group: u32,
    },
    /// Delays of all functions that are not tested one by one. Only records from before chips have it.
    Rest,
    /// Delays of the functions that the coins chose, even if that is only one.
    Several,
}

/// A time of constant doses, without its first part, in which the change of doses settles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Its phase.
    pub phase: PhaseKind,
    /// Its block, from 0 in each phase.
    pub block: u32,
    /// Its purpose.
    pub treatment: Treatment,
    /// When measuring began (`CLOCK_MONOTONIC`).
    pub start_ns: Nanos,
    /// When it ended.
    pub end_ns: Nanos,
    /// Delay of a call, by candidate; other candidates had none.
    pub doses: Vec<(u32, Nanos)>,
    /// Calls and delays of the candidates with a dose.
    pub delivered: Vec<Delivered>,
    /// Units that were done.
    pub units: f64,
    /// The total latency of these units, in ns; `None` if not measured.
    pub latency_ns: Option<f64>,
    /// Quantiles of the latencies; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<Quantiles>,
    /// Units by latency, if a quantile is compared: buckets of `speed_bump_abi::Latencies`, and how many
    /// units are in each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<(u16, u32)>,
    /// How long no unit was in progress, in ns; `None` if unknown.
    pub idle_ns: Option<f64>,
    /// Further metrics, by name, without those that were set back in the slice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, MetricReading>,
    /// Units that failed, of those that were done: answers over HTTP/1 with a status of 5xx, 408 or 429.
    /// `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<f64>,
    /// Whether a guard set all delays to zero and ended the slice early.
    pub guarded: bool,
    /// Why the slice does not count; empty if it counts. The rules for this do not depend on how long units
    /// took.
    pub marks: Vec<Mark>,
}

/// The delays of one function in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The candidate's number.
    pub candidate: u32,
    /// Calls of it that were counted in the slice.
    pub calls: u64,
    /// The total requested delay, without `bounded_ns`.
    pub asked_ns: Nanos,
    /// The total delivered delay.
    pub delivered_ns: Nanos,
    /// The total delay that the bound on threads left out.
    #[serde(default, skip_serializing_if = "is_none")]
    pub bounded_ns: Nanos,
}

impl Delivered {
    /// All that was requested.
    pub fn all_asked(&self) -> Nanos {
        Nanos(self.asked_ns.0.saturating_add(self.bounded_ns.0))
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it")]
fn is_none(delay: &Nanos) -> bool {
    delay.0 == 0
}

/// Why a slice does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The tool itself was late, by at least 100 ms and at least the length of the slice.
    Late,
    /// A guard ended it too early.
    Guarded,
    /// The service was still changing in the census, without any delay.
    Unsettled,
    /// The load was not there, or was being checked.
    Load,
}

impl Slice {
    /// Its length, in ns.
    pub fn span(&self) -> f64 {
        self.end_ns.0.saturating_sub(self.start_ns.0) as f64
    }

    /// Time per unit of work, in ns. A slice without units counts as half a unit. If a quantile is compared,
    /// the result is the mean latency, because one slice has too few units for a quantile.
    pub fn time_per_unit(&self, by: By) -> f64 {
        match self.latency_ns.filter(|_| by != By::Throughput && self.units > 0.0) {
            Some(latency) => latency / self.units,
            None => self.span() / self.units.max(0.5),
        }
    }

    /// Units per second.
    pub fn rate(&self) -> f64 {
        if self.span() > 0.0 { self.units * 1e9 / self.span() } else { 0.0 }
    }

    /// Delay per unit of work, in ns.
    pub fn delay_per_unit(&self) -> f64 {
        self.delivered.iter().map(|of| of.delivered_ns.0 as f64).sum::<f64>() / self.units.max(0.5)
    }

    /// Whether the bound on threads left out more than a hundredth of its delays.
    pub fn is_cut(&self) -> bool {
        let sum = |of: fn(&Delivered) -> Nanos| {
            self.delivered.iter().fold(0_u64, |sum, one| sum.saturating_add(of(one).0))
        };
        sum(|of| of.bounded_ns) > sum(Delivered::all_asked) / 100
    }

    /// Whether it counts.
    pub fn counts(&self) -> bool {
        self.marks.is_empty()
    }
}
