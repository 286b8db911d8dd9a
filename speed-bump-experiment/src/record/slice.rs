//! A stretch of constant doses: what it is for, and what was measured in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{By, MetricReading, PhaseKind, Quantiles};
use crate::units::Nanos;

/// What a slice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Treatment {
    /// No delays: what others are compared with.
    Control,
    /// Delays of zero, but else as those of a function: what shows here is an error of the experiment.
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
    /// Delays of all that is not looked at one by one.
    Rest,
    /// Delays of several functions at once.
    Several,
}

/// A stretch of constant doses. Its first part, in which the change of doses settles, is not in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The phase that it is of.
    pub phase: PhaseKind,
    /// Its block, from 0 in each phase.
    pub block: u32,
    /// What it is for.
    pub treatment: Treatment,
    /// When measuring began (`CLOCK_MONOTONIC`).
    pub start_ns: Nanos,
    /// When it ended.
    pub end_ns: Nanos,
    /// Delays of a call, by candidate; those that are not here had none.
    pub doses: Vec<(u32, Nanos)>,
    /// What candidates with a dose were called and delayed.
    pub delivered: Vec<Delivered>,
    /// Units that were done.
    pub units: f64,
    /// The times from their beginnings to their ends, in all, in ns; `None` where that is not measured.
    pub latency_ns: Option<f64>,
    /// How those times spread; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<Quantiles>,
    /// For how long no unit was under way, in ns; `None` where that is not known.
    pub idle_ns: Option<f64>,
    /// What further metrics did, by name. One that was set back meanwhile is not here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, MetricReading>,
    /// Units that failed, of those that were done: answers over HTTP/1 with a status of 5xx, 408 or 429.
    /// `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<f64>,
    /// Whether a guard set all delays to zero, which ended it early.
    pub guarded: bool,
    /// Why it does not count: rules that know nothing of how long units took.
    pub marks: Vec<Mark>,
}

/// What one function was delayed in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Which.
    pub candidate: u32,
    /// Its calls.
    pub calls: u64,
    /// What they were to be delayed, in all.
    pub asked_ns: Nanos,
    /// What they were delayed, in all.
    pub delivered_ns: Nanos,
}

/// Why a slice does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The tool itself was late by more than a tenth of the slice.
    Late,
    /// A guard ended it before there was anything to measure.
    Guarded,
    /// It is of a census in which the service was still changing, without any delay.
    Unsettled,
    /// The load was not there, or it was looked whether it is.
    Load,
}

impl Slice {
    /// How long it took, in ns.
    pub fn span(&self) -> f64 {
        self.end_ns.0.saturating_sub(self.start_ns.0) as f64
    }

    /// Time per unit of work, in ns. Where none was done, it took twice the slice at least.
    pub fn time_per_unit(&self, by: By) -> f64 {
        match (by, self.latency_ns) {
            (By::Latency, Some(latency)) if self.units > 0.0 => latency / self.units,
            (By::Latency | By::Throughput, _) => self.span() / self.units.max(0.5),
        }
    }

    /// Units in a second.
    pub fn rate(&self) -> f64 {
        if self.span() > 0.0 { self.units * 1e9 / self.span() } else { 0.0 }
    }

    /// Delay per unit of work, in ns.
    pub fn delay_per_unit(&self) -> f64 {
        self.delivered.iter().map(|of| of.delivered_ns.0 as f64).sum::<f64>() / self.units.max(0.5)
    }

    /// Whether it counts.
    pub fn counts(&self) -> bool {
        self.marks.is_empty()
    }
}
