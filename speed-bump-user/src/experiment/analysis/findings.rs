//! What follows from a record: for each function what it is worth, how sure that is, and what is said of it.

use std::path::PathBuf;

use serde::Serialize;

use super::{
    contrast::{Contrast, contrasts},
    estimate::{Estimate, estimate},
    hinge::hinge,
    sentence::sentence,
    validity::{Validity, controls, validity},
    verdict::{Trial, Verdict, seen, verdicts},
};
use crate::{
    experiment::{
        record::{By, Candidate, Measured, PhaseKind, Slice, Treatment},
        screen::screened,
    },
    targets::TargetKind,
    units::Nanos,
};

/// The intervals that are told.
const CONFIDENCE: f64 = 0.95;

/// What follows from a record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    /// Time per unit without delays, in ns.
    pub time_per_unit_ns: Option<f64>,
    /// Whether arrivals set the throughput, and not the service; `None` where that is not known.
    pub open_loop: Option<bool>,
    /// Whether it may be believed.
    pub validity: Validity,
    /// The answer, in a sentence.
    pub verdict: String,
    /// By worth, the most first.
    pub factors: Vec<Factor>,
}

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

/// A factor, and what it was tried by.
struct Tried {
    factor: Factor,
    trial: Trial,
}

/// What follows from a record.
pub fn findings(measured: &Measured) -> Findings {
    let validity = validity(measured);
    let unit = controls(measured.of_phase(PhaseKind::Confirm), measured.by)
        .or_else(|| controls(measured.slices.iter().filter(|slice| slice.counts()), measured.by));
    let mut tried = tried(measured, unit);
    let trials: Vec<Trial> = tried.iter().map(|of| of.trial.clone()).collect();
    let alike = alike(measured);
    let verdicts = verdicts(&trials, &measured.rules, blocks(measured));
    for (of, verdict) in tried.iter_mut().zip(verdicts) {
        of.fill(verdict, unit, alike);
    }
    let mut factors: Vec<Factor> = tried.into_iter().map(|of| of.factor).collect();
    let together = together(measured);
    factors.extend(left(measured, unit, &together, alike));
    let matters = factors.iter().any(|of| of.verdict == Verdict::Matters);
    let open_loop = open_loop(measured, matters);
    let withheld = if !validity.holds {
        Some("the experiment's own checks failed, so that no verdict stands")
    } else if open_loop.is_none() && factors.iter().any(|of| of.verdict == Verdict::DoesNotMatter) {
        Some(
            "no function is shown to matter, and it is not known whether the service sets the throughput or its \
             clients do; if they ask again as soon as they have an answer, say --closed-loop",
        )
    } else {
        None
    };
    if let Some(why) = withheld {
        for factor in &mut factors {
            if matches!(factor.verdict, Verdict::Matters | Verdict::DoesNotMatter | Verdict::Jointly) {
                factor.verdict = Verdict::Undecided;
                factor.reason = Some(why.to_owned());
            }
        }
    }
    factors.sort_by(|a, b| {
        let order = |of: &Factor| (of.verdict == Verdict::Dismissed, of.kind == FactorKind::Group);
        let own = |of: &Factor| of.own_ns_per_unit.unwrap_or(0.0);
        (order(a).cmp(&order(b)))
            .then(b.worth.unwrap_or(-1.0).total_cmp(&a.worth.unwrap_or(-1.0)))
            .then(own(b).total_cmp(&own(a)))
            .then_with(|| (&a.name, &a.file, a.line).cmp(&(&b.name, &b.file, b.line)))
    });
    let verdict = sentence(&factors, withheld, measured.aborted.as_deref());
    Findings { time_per_unit_ns: unit, open_loop, validity, verdict, factors }
}

/// Without a unit under way for less than this share of the time, a service does all that it can.
const SATURATED: f64 = 0.05;

/// Whether arrivals set the throughput. They do not where a delay changes it, nor where there is always work.
fn open_loop(measured: &Measured, matters: bool) -> Option<bool> {
    if measured.by == By::Latency {
        return Some(true);
    }
    let is_saturated = idle(measured).is_some_and(|share| share < SATURATED);
    (measured.rules.closed_loop || matters || is_saturated).then_some(false)
}

/// For which share of the time without delays no unit was under way.
pub fn idle(measured: &Measured) -> Option<f64> {
    let census = || measured.of_phase(PhaseKind::Census);
    let idle: Option<f64> = census().map(|slice| slice.idle_ns).sum();
    let span: f64 = census().map(Slice::span).sum();
    // Less than nothing: several were under way at once, and nothing is known of when there was none.
    idle.filter(|idle| span > 0.0 && *idle >= 0.0).map(|idle| idle / span)
}

/// Whether there is a verdict about everything that was looked at one by one.
pub fn is_decided(measured: &Measured) -> bool {
    let unit = controls(measured.of_phase(PhaseKind::Confirm), measured.by);
    let trials: Vec<Trial> = tried(measured, unit).into_iter().map(|of| of.trial).collect();
    let verdicts = verdicts(&trials, &measured.rules, blocks(measured));
    !verdicts.is_empty() && verdicts.iter().all(|verdict| *verdict != Verdict::Undecided)
}

/// Blocks of the last phase that are done, or begun.
fn blocks(measured: &Measured) -> u32 {
    measured.of_phase(PhaseKind::Confirm).map(|slice| slice.block + 1).max().unwrap_or(0)
}

/// What was looked at one by one, with the group of all else.
fn tried(measured: &Measured, unit: Option<f64>) -> Vec<Tried> {
    let mut treatments: Vec<Treatment> = measured
        .of_phase(PhaseKind::Confirm)
        .map(|slice| slice.treatment)
        .filter(|of| matches!(of, Treatment::Function { .. } | Treatment::Rest))
        .collect();
    treatments.sort_unstable();
    treatments.dedup();
    let factor = |treatment: Treatment| match treatment {
        Treatment::Function { candidate } => {
            let candidate = measured.candidates.get(candidate as usize)?;
            Some(of_candidate(measured, candidate))
        }
        Treatment::Rest => Some(of_rest(measured)),
        Treatment::Control | Treatment::Placebo | Treatment::Several => None,
    };
    let tried = |treatment: Treatment| {
        let factor = factor(treatment)?;
        let contrasts = contrasts(measured.of_phase(PhaseKind::Confirm), treatment, u32::MAX, measured.by);
        let share = factor.own_ns_per_unit.zip(unit).map(|(own, unit)| own / unit);
        Some(Tried { factor, trial: Trial { contrasts, share } })
    };
    treatments.into_iter().filter_map(tried).collect()
}

impl Tried {
    /// `alike` is the sensitivity of all functions, where it is one: more slices know of it than of one.
    fn fill(&mut self, verdict: Verdict, unit: Option<f64>, alike: Option<Estimate>) {
        let factor = &mut self.factor;
        factor.verdict = verdict;
        let bend = hinge(&self.trial.contrasts).filter(|bend| bend.low > 0.0);
        let seen = seen(&self.trial, u32::MAX);
        if let Some(found) = estimate(&seen, CONFIDENCE) {
            let is_alike = |all: &Estimate| found.low <= all.sensitivity && all.sensitivity <= found.high;
            factor.set(alike.filter(is_alike).unwrap_or(found), unit);
        }
        let longest = || seen.iter().map(|of| of.delay).fold(0.0, f64::max);
        factor.slack_ns = match (bend, verdict) {
            (Some(bend), _) => Some(bend.slack),
            (None, Verdict::DoesNotMatter) => Some(longest()).filter(|ns| *ns > 0.0),
            (None, _) => None,
        };
        let is_faster = factor.high.is_some_and(|high| high < 0.0);
        factor.reason = if is_faster {
            Some("units took less time with delays than without".to_owned())
        } else {
            bend.map(|bend| {
                format!(
                    "delays beyond {} a unit show, {:.0} % of them",
                    Nanos(bend.slack.max(0.0) as u64),
                    bend.beyond * 100.0
                )
            })
        };
    }
}

impl Factor {
    fn set(&mut self, found: Estimate, unit: Option<f64>) {
        let share = self.own_ns_per_unit.zip(unit).map(|(own, unit)| own / unit);
        self.sensitivity = Some(found.sensitivity);
        (self.low, self.high) = (Some(found.low), Some(found.high));
        self.worth = share.map(|share| found.sensitivity * share);
        self.worth_low = share.map(|share| found.low * share);
        self.worth_high = share.map(|share| found.high * share);
    }
}

fn of_candidate(measured: &Measured, candidate: &Candidate) -> Factor {
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
fn of_rest(measured: &Measured) -> Factor {
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

/// What all functions did together, where the titration ended with that.
fn together(measured: &Measured) -> Vec<Contrast> {
    let mut slices: Vec<_> = measured.of_phase(PhaseKind::Titrate).collect();
    let Some(last) = slices.iter().rev().find(|slice| slice.treatment == Treatment::Several) else {
        return Vec::new();
    };
    let doses = last.doses.clone();
    slices.retain(|slice| slice.treatment == Treatment::Control || slice.doses == doses);
    contrasts(slices.into_iter(), Treatment::Several, u32::MAX, measured.by)
}

/// The functions that were not looked at one by one: what all of them did together bounds what each does.
fn left(
    measured: &Measured,
    unit: Option<f64>,
    together: &[Contrast],
    alike: Option<Estimate>,
) -> Vec<Factor> {
    let is_tried = |number: u32| {
        let function = Treatment::Function { candidate: number };
        measured.slices.iter().any(|slice| slice.phase == PhaseKind::Confirm && slice.treatment == function)
    };
    let bound = estimate(together, CONFIDENCE);
    let all: f64 = together.iter().map(|of| of.delay).sum::<f64>() / together.len().max(1) as f64;
    let in_rest: Vec<u32> = measured
        .of_phase(PhaseKind::Confirm)
        .filter(|slice| slice.treatment == Treatment::Rest)
        .flat_map(|slice| slice.doses.iter().map(|(candidate, _)| *candidate))
        .collect();
    let factor = |(number, candidate): (u32, &Candidate)| {
        let mut factor = of_candidate(measured, candidate);
        let share = factor.own_ns_per_unit.zip(unit).map(|(own, unit)| own / unit);
        if candidate.calls == 0 {
            factor.verdict = Verdict::Dismissed;
            factor.reason = Some("it was not called".to_owned());
        } else if share.is_some_and(|share| share < measured.rules.worth) {
            factor.verdict = Verdict::Dismissed;
            factor.reason = Some("its own time is less than what would be worth it".to_owned());
        } else if let Some(bound) = bound
            && let delay = delay_in(measured, number)
            && delay > 0.0
        {
            // The others can only have added to it.
            let high = bound.high.max(0.0) * all / delay;
            factor.high = Some(high);
            factor.worth_high = share.map(|share| high * share);
            if factor.worth_high.is_some_and(|worth| worth < measured.rules.worth)
                || high < measured.rules.threshold
            {
                factor.verdict = Verdict::DoesNotMatter;
                factor.slack_ns = Some(delay);
            }
        } else if let Some(alike) = alike {
            factor.set(alike, unit);
            factor.verdict = Verdict::Jointly;
            factor.reason = Some("all functions together; it was not looked at one by one".to_owned());
        } else if in_rest.contains(&number) {
            factor.reason = Some("it was looked at with everything else".to_owned());
        }
        factor
    };
    let numbered = (0..).zip(&measured.candidates);
    numbered.filter(|(number, _)| !is_tried(*number)).map(factor).collect()
}

/// The sensitivity that all functions have, where the screen found that their delays show alike.
fn alike(measured: &Measured) -> Option<Estimate> {
    let slices = || measured.of_phase(PhaseKind::Screen);
    screened(slices(), measured.candidates.len(), 0, measured.by).all_alike.then_some(())?;
    // Slices of a block that delay the same functions in all, one half of them each, are one contrast.
    let blocks = contrasts(slices(), Treatment::Several, u32::MAX, measured.by);
    estimate(&blocks, CONFIDENCE)
}

/// The delay per unit of a function where all were delayed at once for the last time.
fn delay_in(measured: &Measured, number: u32) -> f64 {
    let last =
        measured.of_phase(PhaseKind::Titrate).filter(|slice| slice.treatment == Treatment::Several).last();
    let of = last.and_then(|slice| {
        let of = slice.delivered.iter().find(|of| of.candidate == number)?;
        Some(of.delivered_ns.0 as f64 / slice.units.max(0.5))
    });
    of.unwrap_or(0.0)
}
