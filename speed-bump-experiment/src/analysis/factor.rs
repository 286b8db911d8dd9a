//! A function, or several together, as findings have it.

use std::path::PathBuf;

use serde::Serialize;

use super::{curve::Curve, estimate::Estimate, verdict::Verdict};
use crate::{
    TargetKind,
    record::{Candidate, Measured, Sharing, Treatment},
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
    /// Whether it is one function, or several together.
    pub kind: FactorKind,
    /// Calls of it per unit of work, as the census counted them.
    pub calls_per_unit: f64,
    /// Own time per unit.
    pub own_ns_per_unit: Option<f64>,
    /// The share of added time that shows up in the time per unit.
    pub sensitivity: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// What making it free would gain, as a share of a unit's time: 1 at most.
    pub worth: Option<f64>,
    /// The lower end of its 95 % interval.
    pub worth_low: Option<f64>,
    /// The upper end.
    pub worth_high: Option<f64>,
    /// Delay per unit that stays hidden.
    pub slack_ns: Option<f64>,
    /// What each of its delays did; `None` where it was not looked at alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// What is said of it.
    pub verdict: Verdict,
    /// Why, where that is not seen from the numbers.
    pub reason: Option<String>,
    /// Where it runs; none of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Whether it shows, be it worth much or little.
    #[serde(skip)]
    pub(super) shows: bool,
    /// What it was tried by, if it was.
    #[serde(skip)]
    pub(super) treatment: Option<Treatment>,
}

/// What a factor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    /// A candidate, of which nothing is found yet.
    pub(super) fn of_candidate(measured: &Measured, candidate: &Candidate) -> Self {
        Self {
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
            curve: None,
            verdict: Verdict::Undecided,
            reason: None,
            sharing: candidate.sharing.clone(),
            shows: false,
            treatment: None,
        }
    }

    /// Several functions together, of which nothing is found yet. `None` without any.
    pub(super) fn of_several(measured: &Measured, name: &str, members: &[u32]) -> Option<Self> {
        let members: Vec<Self> = members
            .iter()
            .filter_map(|of| measured.candidates.get(*of as usize))
            .map(|candidate| Self::of_candidate(measured, candidate))
            .collect();
        let first = members.first()?.clone();
        Some(Self {
            name: match members.len() {
                1 => format!("{name} (1 function)"),
                count => format!("{name} ({count} functions)"),
            },
            file: None,
            line: None,
            kind: FactorKind::Group,
            sharing: None,
            calls_per_unit: members.iter().map(|of| of.calls_per_unit).sum(),
            own_ns_per_unit: members.iter().map(|of| of.own_ns_per_unit).sum(),
            ..first
        })
    }

    /// Its own time as a share of a unit's, which takes so many ns.
    pub fn share(&self, unit: Option<f64>) -> Option<f64> {
        self.own_ns_per_unit.zip(unit).map(|(own, unit)| own / unit)
    }

    /// What a trial, or several together, found.
    pub(super) fn set(&mut self, found: Estimate, unit: Option<f64>) {
        let share = self.share(unit);
        self.sensitivity = Some(found.sensitivity);
        (self.low, self.high) = (Some(found.low), Some(found.high));
        // A unit has no more than all of its time to gain. Own time may be more: many threads wait at once.
        let worth = |sensitivity: f64| share.map(|share| (sensitivity * share).min(1.0));
        self.worth = worth(found.sensitivity);
        self.worth_low = worth(found.low);
        self.worth_high = worth(found.high);
    }
}
