//! What an experiment measured, as its JSON has it. Every number that is ever printed comes from here.

mod around;
mod load_change;
mod metrics;
mod sampling;
mod sharing;
mod slice;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::analysis::{
    findings::{Findings, findings},
    load,
};
use crate::{TargetKind, units::Nanos};
pub use around::Around;
pub use load_change::LoadChange;
pub use metrics::{MetricReading, Quantiles, Quantity};
pub use sampling::{Sampled, Sampling};
pub use sharing::{InCommon, Sharing};
pub use slice::{Delivered, Mark, Slice, Treatment};

/// The name of this format. What readers would notice changes the number.
pub const SCHEMA: &str = "speed-bump/experiment/1";

/// An experiment with what it found.
#[derive(Clone, Debug, Serialize)]
pub struct Experiment {
    /// What was measured.
    #[serde(flatten)]
    pub measured: Measured,
    /// What follows from it.
    #[serde(flatten)]
    pub findings: Findings,
}

impl Experiment {
    /// What was measured, with what follows from it.
    pub fn of(measured: Measured) -> Self {
        let findings = findings(&measured);
        Self { measured, findings }
    }
}

/// Everything that was measured, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the random order of slices comes from.
    pub seed: u64,
    /// What ran it.
    pub versions: Versions,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// The command line.
    pub command: Vec<String>,
    /// What the verdicts go by.
    pub rules: Rules,
    /// What a unit of work is.
    pub unit: Unit,
    /// What was recorded besides, as the command line has it: the names that slices have for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// What is compared.
    pub by: By,
    /// The functions, by the numbers that slices have for them.
    pub candidates: Vec<Candidate>,
    /// Functions that are delayed together, by the numbers that slices have for those.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// The stretch without delays in which calls were timed.
    pub census: Census,
    /// The sampling that chose the functions; `None` where they were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// What changed around it, from the first slice to the last; `None` where that is not known.
    #[serde(default)]
    pub around: Option<Around>,
    /// Why calls of the functions were missed, in the census or later: then nothing follows from what was
    /// seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed_calls: Vec<String>,
    /// In their order.
    pub phases: Vec<Phase>,
    /// In their order.
    pub slices: Vec<Slice>,
    /// When the load was not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_changes: Vec<LoadChange>,
    /// Why it ended before everything was decided, or the time was up.
    pub aborted: Option<String>,
    /// What ended it and leaves nothing to believe, if that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// The guard that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
}

/// Versions of what ran an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Of the tool.
    pub tool: String,
    /// The commit it was built from.
    pub commit: String,
}

/// What the verdicts go by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// A function that is worth less than this share of a unit's time does not matter.
    pub worth: f64,
    /// Nor does one whose sensitivity is below this, unless it shows and is worth that.
    pub threshold: f64,
    /// By what share of its time a unit may be slowed down.
    pub max_slowdown: f64,
    /// Whether the user knows that clients ask again as soon as they have an answer.
    pub closed_loop: bool,
    /// Blocks of the last phase that were planned; verdicts are looked at after each quarter of them.
    pub planned_blocks: u32,
}

/// What is counted as work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// What one is, in the singular: `call of handle (app.py:12)`.
    pub name: String,
    /// The metric, as the command line has it.
    pub source: String,
}

/// What is compared between slices with delays and those without: a time per unit of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The time of a slice over its units, which is the inverse of the throughput.
    #[default]
    Throughput,
    /// The mean time that a unit takes from its beginning to its end.
    Latency,
}

/// A function that may be delayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Symbol, qualified name, or `provider:name`.
    pub name: String,
    /// The file that it lies in, as the process sees it.
    pub file: PathBuf,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// What kind of function.
    pub kind: TargetKind,
    /// Calls in the census.
    pub calls: u64,
    /// Time in the function without that in other candidates, in the census; `None` where it could not be
    /// timed.
    pub own_ns: Option<Nanos>,
    /// The least delay that a call can get.
    pub floor_ns: Nanos,
    /// What sampling saw of it; `None` where functions were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// Where it runs; `None` where sampling did not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

/// Functions that are delayed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What they have in common: a file, a folder, a class; or their names.
    pub name: String,
    /// Their numbers.
    pub members: Vec<u32>,
    /// Whether they were put together because each of them alone stayed hidden.
    pub shares_slack: bool,
    /// Whether its functions are told of one by one besides.
    #[serde(default)]
    pub beside_members: bool,
}

/// The stretch in which calls were timed. Nothing was delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Census {
    /// When it began (`CLOCK_MONOTONIC`).
    pub start_ns: Nanos,
    /// When it ended.
    pub end_ns: Nanos,
    /// Units that were done meanwhile.
    pub units: f64,
    /// By what share units took longer than without the timing; `None` where that was not measured.
    pub slowdown: Option<f64>,
}

/// A part of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// No delays: what a unit takes, and how that varies.
    Census,
    /// Everything at once, with delays that double.
    Titrate,
    /// Random halves of all functions.
    Screen,
    /// The few that are left, one at a time.
    Confirm,
    /// No delays: whether the service is as before.
    Recover,
}

/// A phase that began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Which.
    pub kind: PhaseKind,
    /// When.
    pub start_ns: Nanos,
    /// When it ended.
    pub end_ns: Nanos,
    /// How it ended, for people.
    pub outcome: String,
}

impl Census {
    /// Time per unit of work, in ns. Where none was done, it took twice the census at least.
    pub fn time_per_unit(&self) -> f64 {
        self.end_ns.0.saturating_sub(self.start_ns.0) as f64 / self.units.max(0.5)
    }
}

impl Candidate {
    /// Why it is not in the experiment, where that was decided before it began.
    pub fn left_out(&self) -> Option<&str> {
        self.sampled.as_ref()?.left_out.as_deref()
    }
}

impl Measured {
    /// Why it ended with nothing to believe, if it did.
    pub fn not_valid(&self) -> Option<String> {
        load::gone(self).or_else(|| load::driven_away(self)).or_else(|| self.invalid.clone())
    }

    /// Slices of a phase that count.
    pub fn of_phase(&self, phase: PhaseKind) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| slice.phase == phase && slice.counts())
    }

    /// The candidates that are worth an experiment, by number, where a unit takes so many ns: those that are
    /// called, take as much time as matters, and can be delayed little enough.
    pub fn worth_it(&self, unit: f64) -> impl Iterator<Item = (u32, &Candidate)> {
        let least = self.rules.worth * unit;
        self.can_be_delayed(unit)
            .filter(move |(_, candidate)| self.own_per_unit(candidate).is_none_or(|own| own >= least))
    }

    /// The candidates that are called, and can be delayed little enough.
    pub fn can_be_delayed(&self, unit: f64) -> impl Iterator<Item = (u32, &Candidate)> {
        let numbered = (0..).zip(&self.candidates);
        numbered.filter(move |(_, candidate)| {
            candidate.calls > 0 && candidate.left_out().is_none() && !self.is_too_often(candidate, unit)
        })
    }

    /// Own time of the candidate of this number per unit, in ns.
    pub fn own_of(&self, candidate: u32) -> Option<f64> {
        self.candidates.get(candidate as usize).and_then(|of| self.own_per_unit(of))
    }

    /// Whether a candidate is called so often that the least delay of each call is more than a unit may be
    /// slowed down by.
    pub fn is_too_often(&self, candidate: &Candidate, unit: f64) -> bool {
        let least = candidate.floor_ns.0 as f64 * self.calls_per_unit(candidate);
        least > self.rules.max_slowdown * unit
    }

    /// What the last phase looked at one by one, and the rest if there was one, in their order.
    pub fn treated(&self) -> Vec<Treatment> {
        let treatments = self.of_phase(PhaseKind::Confirm).map(|slice| slice.treatment);
        let is_tried = |of: &Treatment| match of {
            Treatment::Function { .. } | Treatment::Group { .. } | Treatment::Rest => true,
            Treatment::Control | Treatment::Placebo | Treatment::Several => false,
        };
        let mut treated: Vec<Treatment> = treatments.filter(is_tried).collect();
        treated.sort_unstable();
        treated.dedup();
        treated
    }

    /// The candidates that a treatment delays.
    pub fn members(&self, treatment: Treatment) -> Vec<u32> {
        match treatment {
            Treatment::Function { candidate } => vec![candidate],
            Treatment::Group { group } => {
                self.groups.get(group as usize).map(|of| of.members.clone()).unwrap_or_default()
            }
            Treatment::Rest => self.rest(),
            Treatment::Control | Treatment::Placebo | Treatment::Several => Vec::new(),
        }
    }

    /// The candidates of the rest, in their order.
    pub fn rest(&self) -> Vec<u32> {
        let slices = self.of_phase(PhaseKind::Confirm).filter(|slice| slice.treatment == Treatment::Rest);
        let mut rest: Vec<u32> = slices.flat_map(|slice| slice.doses.iter().map(|(of, _)| *of)).collect();
        rest.sort_unstable();
        rest.dedup();
        rest
    }

    /// Calls of a candidate per unit, as the census found them.
    pub fn calls_per_unit(&self, candidate: &Candidate) -> f64 {
        candidate.calls as f64 / self.census.units.max(1.0)
    }

    /// Own time of a candidate per unit, in ns, as the census found it.
    pub fn own_per_unit(&self, candidate: &Candidate) -> Option<f64> {
        candidate.own_ns.map(|own| own.0 as f64 / self.census.units.max(1.0))
    }
}
