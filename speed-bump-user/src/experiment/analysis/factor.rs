//! A function, or several together, as findings have it.

use std::path::PathBuf;

use serde::Serialize;

use super::{estimate::Estimate, verdict::Verdict};
use crate::{
    experiment::record::{Candidate, Measured, PhaseKind, Treatment},
    targets::TargetKind,
};

/// What was found of a function, or of several together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Factor {
    /// Symbol, qualified name, `provider:name`, or what the group is.
    pub name: String,
    /// The file that it lies in; none of a group.
    pub file: Option<PathBuf>,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// What it is.
    pub kind: FactorKind,
    /// Calls per unit.
    pub calls_per_unit: f64,
    /// Own time per unit.
    pub own_ns_per_unit: Option<f64>,
    /// The share of added time that shows up in the time per unit.
    pub sensitivity: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// What making it free would gain, as a share of a unit's time.
    pub worth: Option<f64>,
    /// The lower end of its 95 % interval.
    pub worth_low: Option<f64>,
    /// The upper end.
    pub worth_high: Option<f64>,
    /// Delay per unit that stays hidden.
    pub slack_ns: Option<f64>,
    /// What is said of it.
    pub verdict: Verdict,
    /// Why, where that is not seen from the numbers.
    pub reason: Option<String>,
}

/// What a factor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactorKind {
    /// A Python function.
    Python,
    /// A native function.
    Native,
    /// A USDT probe.
    Usdt,
    /// Several functions.
    Group,
}

impl From<TargetKind> for FactorKind {
    fn from(kind: TargetKind) -> Self {
        match kind {
            TargetKind::Python => Self::Python,
            TargetKind::Native => Self::Native,
            TargetKind::Usdt => Self::Usdt,
        }
    }
}

impl Factor {
    /// What a trial, or several together, found.
    pub(super) fn set(&mut self, found: Estimate, unit: Option<f64>) {
        let share = self.own_ns_per_unit.zip(unit).map(|(own, unit)| own / unit);
        self.sensitivity = Some(found.sensitivity);
        (self.low, self.high) = (Some(found.low), Some(found.high));
        self.worth = share.map(|share| found.sensitivity * share);
        self.worth_low = share.map(|share| found.low * share);
        self.worth_high = share.map(|share| found.high * share);
    }
}

/// A candidate, of which nothing is found yet.
pub(super) fn of_candidate(measured: &Measured, candidate: &Candidate) -> Factor {
    Factor {
        name: candidate.name.clone(),
        file: Some(candidate.file.clone()),
        line: candidate.line,
        kind: candidate.kind.into(),
        calls_per_unit: measured.calls_per_unit(candidate),
        own_ns_per_unit: measured.own_per_unit(candidate),
        sensitivity: None,
        low: None,
        high: None,
        worth: None,
        worth_low: None,
        worth_high: None,
        slack_ns: None,
        verdict: Verdict::Undecided,
        reason: None,
    }
}

/// The functions that slices of the rest delayed.
pub(super) fn of_rest(measured: &Measured) -> Factor {
    let mut members: Vec<u32> = measured
        .of_phase(PhaseKind::Confirm)
        .filter(|slice| slice.treatment == Treatment::Rest)
        .flat_map(|slice| slice.doses.iter().map(|(candidate, _)| *candidate))
        .collect();
    members.sort_unstable();
    members.dedup();
    let of = || members.iter().filter_map(|of| measured.candidates.get(*of as usize));
    let own: Option<f64> = of().map(|candidate| measured.own_per_unit(candidate)).sum();
    let calls = of().map(|candidate| measured.calls_per_unit(candidate)).sum();
    Factor {
        name: format!("everything else ({} functions)", members.len()),
        file: None,
        line: None,
        kind: FactorKind::Group,
        calls_per_unit: calls,
        own_ns_per_unit: own,
        sensitivity: None,
        low: None,
        high: None,
        worth: None,
        worth_low: None,
        worth_high: None,
        slack_ns: None,
        verdict: Verdict::Undecided,
        reason: None,
    }
}
