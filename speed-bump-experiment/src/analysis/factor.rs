//! What the findings say about a function, or about several together.

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

/// The findings about a function, or about several together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Factor {
    /// Symbol, qualified name, `provider:name` or name of the group; with the caller, if only its calls are
    /// meant.
    pub name: String,
    /// The callers whose calls are meant, as in `caller=`; `None`: all calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Its file; `None` for a group.
    pub file: Option<PathBuf>,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// The kind of function, or a group.
    pub kind: FactorKind,
    /// Whose code it is; for a group, that of its first function.
    pub origin: Origin,
    /// Calls per unit of work, as the census counted them.
    pub calls_per_unit: f64,
    /// Own time per unit, without the waits that are known.
    pub own_ns_per_unit: Option<f64>,
    /// Waiting time per unit, which own time does not include.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ns_per_unit: Option<f64>,
    /// The share of the added time that shows up in the time per unit.
    pub sensitivity: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The gain if it took no time, as a share of the time per unit: 1 at most.
    pub worth: Option<f64>,
    /// The lower end of its 95 % interval.
    pub worth_low: Option<f64>,
    /// The upper end.
    pub worth_high: Option<f64>,
    /// Delay per unit that stays hidden.
    pub slack_ns: Option<f64>,
    /// The effect of each of its delays; `None` if the ladder did not try it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for the verdict, if the numbers do not show it.
    pub reason: Option<String>,
    /// Whether the finding about its thread is all that is known about it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub as_thread: bool,
    /// Where it runs; `None` for a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// The number of its arm, if the experiment tested it.
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
    /// A candidate without findings.
    pub(super) fn for_candidate(measured: &Measured, candidate: &Candidate) -> Self {
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

    /// A group without findings; `None` if none of its members is a candidate.
    pub(super) fn for_group(measured: &Measured, name: &str, members: &[u32]) -> Option<Self> {
        let members: Vec<Self> = members
            .iter()
            .filter_map(|of| measured.candidates.get(*of as usize))
            .map(|candidate| Self::for_candidate(measured, candidate))
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

    /// Own time as a share of the time per unit, which is `unit` ns.
    pub fn share(&self, unit: Option<f64>) -> Option<f64> {
        self.own_ns_per_unit.zip(unit).map(|(own, unit)| own / unit)
    }

    /// Takes back "matters" if later chips have shown that it is worth less than this share.
    pub(super) fn check_worth(&mut self, worth: f64) {
        if self.worth_high.is_some_and(|high| high < worth) {
            self.verdict = Verdict::DoesNotMatter;
        } else if self.worth.is_some_and(|of| of < worth) {
            self.verdict = Verdict::Undecided;
            self.reason = Some(format!("it shows, and is worth about {:.1} %", worth * 100.0));
        }
    }

    /// The most that any of these functions may be worth; `None` if there are no functions, or if one of them
    /// has no bound.
    pub(crate) fn worth_bound(factors: &[&Self]) -> Option<f64> {
        let bounds: Option<Vec<f64>> = factors.iter().map(|of| of.worth_high).collect();
        bounds?.into_iter().reduce(f64::max)
    }

    /// Its estimate; `None` if it has none.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        Some(Estimate { sensitivity: self.sensitivity?, low: self.low?, high: self.high? })
    }

    /// Sets the estimate from the chips, and the worth that follows.
    pub(super) fn set(&mut self, found: Estimate, unit: Option<f64>) {
        let share = self.share(unit);
        self.sensitivity = Some(found.sensitivity);
        (self.low, self.high) = (Some(found.low), Some(found.high));
        // No unit can gain more than all of its time. Own time may exceed that: many threads wait at once.
        let worth = |sensitivity: f64| share.map(|share| (sensitivity * share).min(1.0));
        self.worth = worth(found.sensitivity);
        self.worth_low = worth(found.low);
        self.worth_high = worth(found.high);
    }
}
