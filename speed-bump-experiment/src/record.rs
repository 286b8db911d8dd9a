//! The measurements of an experiment, in the form of its JSON. Every printed number comes from here.

mod around;
mod compared;
mod inner_unit;
mod load_change;
mod metrics;
mod origin;
mod sampling;
mod sharing;
mod slice;
mod started_load;
mod wait;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::analysis::{
    findings::{Findings, findings},
    load,
};
use crate::{TargetKind, demangle::for_people, units::Nanos};
pub use around::{Around, ThreadTime};
pub use compared::By;
pub use inner_unit::{InnerUnit, StepsOfUnits};
pub use load_change::LoadChange;
pub use metrics::{MetricReading, Quantiles, Quantity};
pub use origin::Origin;
pub use sampling::{Sampled, Sampling};
pub use sharing::{InCommon, Sharing};
pub use slice::{Delivered, Mark, Slice, Treatment};
pub use started_load::StartedLoad;
pub use wait::Wait;

/// The name of this format. A change that readers of records notice changes the number.
pub const SCHEMA: &str = "speed-bump/experiment/2";
/// Up to this many functions that a user names are all tried, however little time they take.
const NAMED: usize = 20;
/// The name of the format before, which can still be read: its slices count as chips.
pub const SCHEMA_1: &str = "speed-bump/experiment/1";

/// An experiment with its findings.
#[derive(Clone, Debug, Serialize)]
pub struct Experiment {
    /// The measurements.
    #[serde(flatten)]
    pub measured: Measured,
    /// What follows from the record, computed from it alone.
    #[serde(flatten)]
    pub findings: Findings,
}

impl Experiment {
    /// Analyses measurements.
    pub fn new(measured: Measured) -> Self {
        let findings = findings(&measured);
        Self { measured, findings }
    }
}

/// All measurements of an experiment, and how they were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`SCHEMA`].
    pub schema: String,
    /// The seed of the random order of slices.
    pub seed: u64,
    /// The versions that ran it.
    pub versions: Versions,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// The command line.
    pub command: Vec<String>,
    /// Parameters of the verdicts.
    pub rules: Rules,
    /// The unit of work.
    pub unit: Unit,
    /// The longer unit, if the units are steps inside of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_unit: Option<InnerUnit>,
    /// Names of the further metrics, as on the command line and in slices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// What the experiment compares.
    pub by: By,
    /// The functions, by their numbers in slices.
    pub candidates: Vec<Candidate>,
    /// Functions that are delayed together, by their numbers in slices.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// The functions, or groups of them, that were asked about, in the order of the fit; none in a record of
    /// [`SCHEMA_1`].
    #[serde(default)]
    pub arms: Vec<Treatment>,
    /// The stretch without delays in which calls were timed.
    pub census: Census,
    /// The sampling that chose the functions; `None` if they were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// What threads that do units waited for, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// What changed around the experiment, from the first slice to the last; `None` if unknown.
    #[serde(default)]
    pub around: Option<Around>,
    /// The busiest threads of the service during the experiment, the busiest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadTime>,
    /// Why calls of the functions were missed, in the census or later. Then there is no verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed_calls: Vec<String>,
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// The slices, in order.
    pub slices: Vec<Slice>,
    /// Times without the usual load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_changes: Vec<LoadChange>,
    /// The load, if the sweep started it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<StartedLoad>,
    /// Why it ended before everything was decided or the time was over.
    pub aborted: Option<String>,
    /// Why the measurements are not valid, if that ended the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// The guard that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
}

/// Versions that ran an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Version of the tool.
    pub tool: String,
    /// The commit it was built from.
    pub commit: String,
}

/// Parameters of the verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// A function that is worth less than this share of the time per unit does not matter.
    pub worth: f64,
    /// A function whose sensitivity is below this does not matter either, unless it shows and is worth
    /// `worth`.
    pub threshold: f64,
    /// How much longer a unit may take, as a share of its time.
    pub max_slowdown: f64,
    /// Chips that a verdict needs, so that it does not rest on a moment in which the machine was disturbed.
    #[serde(default)]
    pub min_chips: usize,
    /// Whether clients send the next request as soon as they have an answer, as the user says, or there are
    /// no clients.
    pub closed_loop: bool,
}

/// The unit of work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its name, in the singular: `call of handle (app.py:12)`.
    pub name: String,
    /// The metric, as on the command line.
    pub source: String,
}

/// A function that may be delayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Symbol, qualified name, or `provider:name`.
    pub name: String,
    /// Its file, as the process sees it.
    pub file: PathBuf,
    /// The line of its definition, if known.
    pub line: Option<u32>,
    /// The callers whose calls are meant, as in `caller=`; `None`: all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// What kind of function.
    pub kind: TargetKind,
    /// Whose code it is.
    #[serde(default)]
    pub origin: Origin,
    /// Calls in the census.
    pub calls: u64,
    /// Time in the function without other candidates and without waits, in the census; `None` if it could not
    /// be timed.
    pub own_ns: Option<Nanos>,
    /// How long it waited in that time: without a processor, by samples; `None` if unknown. Then `own_ns`
    /// includes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<Nanos>,
    /// The smallest possible delay of a call.
    pub floor_ns: Nanos,
    /// What sampling saw of it; `None` if functions were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// Where it runs; `None` if sampling did not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

/// Functions that are delayed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What they share: a file, a folder, a class; or their names.
    pub name: String,
    /// Their numbers.
    pub members: Vec<u32>,
}

/// The time in which calls were timed, without delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Census {
    /// When it began (`CLOCK_MONOTONIC`).
    pub start_ns: Nanos,
    /// When it ended.
    pub end_ns: Nanos,
    /// Units that were done in this time.
    pub units: f64,
    /// How much longer units took than without timing, as a share; `None` if unknown.
    pub slowdown: Option<f64>,
}

/// A part of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// No delays: measures the time per unit and its variation.
    Census,
    /// All functions at once, with delays that double. Only in records of [`SCHEMA_1`], as the next two.
    Titrate,
    /// Random halves of all functions.
    Screen,
    /// The remaining functions, one at a time.
    Confirm,
    /// Chips: each undecided function is delayed or not, by its own coin.
    Test,
    /// Larger and smaller doses of the functions that were found, one at a time: where delays begin to show.
    Ladder,
    /// No delays: checks that the service is as before.
    Recover,
}

/// A phase of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Which phase.
    pub kind: PhaseKind,
    /// When it began.
    pub start_ns: Nanos,
    /// When it ended.
    pub end_ns: Nanos,
    /// Its outcome, for the user.
    pub outcome: String,
}

impl Census {
    /// Time per unit of work, in ns. Without any unit, it is twice the census.
    pub fn time_per_unit(&self) -> f64 {
        self.end_ns.0.saturating_sub(self.start_ns.0) as f64 / self.units.max(0.5)
    }
}

impl Candidate {
    /// The function, whichever of its calls are meant: file, name and line.
    pub fn function(&self) -> (&Path, &str, Option<u32>) {
        (&self.file, &self.name, self.line)
    }

    /// Its name, and whose calls are meant: `burn from cold_tail`. Without a caller the name as it is; with
    /// one, the name of a native function is demangled.
    pub fn name_and_caller(&self) -> String {
        let Some(caller) = &self.caller else { return self.name.clone() };
        let caller = match caller.rsplit_once(':') {
            // `MODULE:NAME`, and no `ns::f` of C++.
            Some((module, name)) if !module.is_empty() && !module.ends_with(':') => name,
            _ => caller,
        };
        let demangled = (self.kind == TargetKind::Native).then(|| for_people(&self.name)).flatten();
        format!("{} from {caller}", demangled.as_ref().unwrap_or(&self.name))
    }

    /// Why it is not in the experiment, if that was decided before the experiment began.
    pub fn left_out(&self) -> Option<&str> {
        self.sampled.as_ref()?.left_out.as_deref()
    }
}

impl Measured {
    /// Why its measurements are not valid, if they are not.
    pub fn not_valid(&self) -> Option<String> {
        load::gone(self).or_else(|| load::driven_away(self)).or_else(|| self.invalid.clone())
    }

    /// Whether units are runs of a benchmark, one a slice.
    pub(crate) fn is_of_runs(&self) -> bool {
        self.unit.source.starts_with("--bench ")
    }

    /// Whether it ended in the phase after the last delay.
    pub fn delays_were_over(&self) -> bool {
        self.phases.last().is_some_and(|phase| phase.kind == PhaseKind::Recover)
    }

    /// Slices of a phase that count.
    pub fn of_phase(&self, phase: PhaseKind) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| slice.phase == phase && slice.counts())
    }

    /// The candidates that are worth an experiment, by number, if a unit takes `unit` ns: those that are
    /// called, take enough time to matter, and can have small enough delays. If the user named a few
    /// functions, they need not take enough time.
    pub fn worth_it(&self, unit: f64) -> impl Iterator<Item = (u32, &Candidate)> {
        let least = self.least_own(unit);
        self.can_be_delayed(unit)
            .filter(move |(_, candidate)| self.own_per_unit(candidate).is_none_or(|own| own >= least))
    }

    /// The least own time per unit, in ns, that is worth an experiment: any, if the user named the functions.
    pub(crate) fn least_own(&self, unit: f64) -> f64 {
        if self.are_named() { 0.0 } else { self.rules.worth * unit }
    }

    /// Whether the user named the functions, and not too many to try them all.
    pub(crate) fn are_named(&self) -> bool {
        self.sampling.is_none() && self.candidates.len() <= NAMED
    }

    /// The candidates that are called and can have small enough delays.
    pub fn can_be_delayed(&self, unit: f64) -> impl Iterator<Item = (u32, &Candidate)> {
        let numbered = (0..).zip(&self.candidates);
        numbered.filter(move |(_, candidate)| {
            candidate.calls > 0 && candidate.left_out().is_none() && !self.is_too_often(candidate, unit)
        })
    }

    /// Own time per unit of the candidate with this number, in ns.
    pub fn own_of(&self, candidate: u32) -> Option<f64> {
        self.candidates.get(candidate as usize).and_then(|of| self.own_per_unit(of))
    }

    /// Whether a candidate is called so often that the smallest delay of each call would exceed the allowed
    /// slowdown of a unit.
    pub fn is_too_often(&self, candidate: &Candidate, unit: f64) -> bool {
        let least = candidate.floor_ns.0 as f64 * self.calls_per_unit(candidate);
        least > self.rules.max_slowdown * unit
    }

    /// The candidates that a treatment delays.
    pub fn members(&self, treatment: Treatment) -> Vec<u32> {
        match treatment {
            Treatment::Function { candidate } => vec![candidate],
            Treatment::Group { group } => {
                self.groups.get(group as usize).map(|of| of.members.clone()).unwrap_or_default()
            }
            Treatment::Control | Treatment::Placebo | Treatment::Rest | Treatment::Several => Vec::new(),
        }
    }

    /// Calls of a candidate per unit, from the census. If a quantile of latency is compared: per unit that
    /// calls it. A quantile moves as much as the units near it, and not as much as the mean of all units.
    pub fn calls_per_unit(&self, candidate: &Candidate) -> f64 {
        candidate.calls as f64 / self.units_of(candidate)
    }

    /// Own time of a candidate per unit, in ns. Units are those of [`Measured::calls_per_unit`].
    pub fn own_per_unit(&self, candidate: &Candidate) -> Option<f64> {
        candidate.own_ns.map(|own| own.0 as f64 / self.units_of(candidate))
    }

    /// Waiting time of a candidate per unit, in ns. Units are those of [`Measured::calls_per_unit`].
    pub(crate) fn waited_per_unit(&self, candidate: &Candidate) -> Option<f64> {
        candidate.waited_ns.map(|waited| waited.0 as f64 / self.units_of(candidate))
    }

    /// An upper bound on the share of units that call a candidate; 1 unless a quantile of latency is
    /// compared.
    pub(crate) fn share_of_units(&self, candidate: &Candidate) -> f64 {
        self.units_of(candidate) / self.census.units.max(1.0)
    }

    /// The units among which the calls of a candidate are divided: all or, if a quantile is compared, those
    /// that call it. How many these are is not known, but no more than there are calls.
    fn units_of(&self, candidate: &Candidate) -> f64 {
        let all = self.census.units.max(1.0);
        match self.by.quantile() {
            Some(_) => all.min(candidate.calls as f64).max(1.0),
            None => all,
        }
    }
}

#[cfg(test)]
mod tests;
