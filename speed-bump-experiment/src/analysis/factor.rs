//! A function, or several together, as findings have it.

use std::path::PathBuf;

use serde::Serialize;

use super::{curve::Curve, verdict::Verdict};
use crate::{
    TargetKind,
    record::{Candidate, Measured, Origin, Sharing},
};

/// A sensitivity, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The share of the delay that shows up in the time per unit.
    pub sensitivity: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// What was found of a function, or of several together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Factor {
    /// Symbol, qualified name, `provider:name`, or what the group is; and whose calls are meant.
    pub name: String,
    /// The functions whose calls are meant, as `caller=` has them; none: all calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The file that it lies in; none of a group.
    pub file: Option<PathBuf>,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// Whether it is one function, or several together.
    pub kind: FactorKind,
    /// Whose code it is; that of the first of several.
    pub origin: Origin,
    /// Calls of it per unit of work, as the census counted them.
    pub calls_per_unit: f64,
    /// Own time per unit, without waits as far as they are known.
    pub own_ns_per_unit: Option<f64>,
    /// How long it waited per unit, besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ns_per_unit: Option<f64>,
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
    /// What each of its delays did; `None` where doses of it alone were not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// What is said of it.
    pub verdict: Verdict,
    /// Why, where that is not seen from the numbers.
    pub reason: Option<String>,
    /// Whether all that is known of it is what its thread shows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub as_thread: bool,
    /// Where it runs; none of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// The number of its arm, if it was asked about.
    #[serde(skip)]
    pub(super) arm: Option<usize>,
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
            name: candidate.name_and_caller(),
            caller: candidate.caller.clone(),
            file: Some(candidate.file.clone()),
            line: candidate.line,
            kind: candidate.kind.into(),
            origin: candidate.origin,
            calls_per_unit: measured.calls_per_unit(candidate),
            own_ns_per_unit: measured.own_per_unit(candidate),
            waited_ns_per_unit: measured.waited_per_unit(candidate),
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
            as_thread: false,
            sharing: candidate.sharing.clone(),
            arm: None,
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
            caller: None,
            file: None,
            line: None,
            kind: FactorKind::Group,
            sharing: None,
            calls_per_unit: members.iter().map(|of| of.calls_per_unit).sum(),
            own_ns_per_unit: members.iter().map(|of| of.own_ns_per_unit).sum(),
            waited_ns_per_unit: members.iter().map(|of| of.waited_ns_per_unit).sum(),
            ..first
        })
    }

    /// Its own time as a share of a unit's, which takes so many ns.
    pub fn share(&self, unit: Option<f64>) -> Option<f64> {
        self.own_ns_per_unit.zip(unit).map(|(own, unit)| own / unit)
    }

    /// Takes back "matters" if more chips have shown since that it is worth less than this share.
    pub(super) fn check_worth(&mut self, worth: f64) {
        if self.worth_high.is_some_and(|high| high < worth) {
            self.verdict = Verdict::DoesNotMatter;
        } else if self.worth.is_some_and(|of| of < worth) {
            self.verdict = Verdict::Undecided;
            self.reason = Some(format!("it shows, and is worth about {:.1} %", worth * 100.0));
        }
    }

    /// What each of these functions is worth at most; `None` without any, and if that is not known of one.
    pub(crate) fn most_of_all(factors: &[&Self]) -> Option<f64> {
        let bounds: Option<Vec<f64>> = factors.iter().map(|of| of.worth_high).collect();
        bounds?.into_iter().reduce(f64::max)
    }

    /// What was found of it; `None` where too little is known.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        Some(Estimate { sensitivity: self.sensitivity?, low: self.low?, high: self.high? })
    }

    /// What the chips say of it.
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
