//! The findings of a record: for each function its worth, how sure that is, and the verdict.

use std::collections::BTreeSet;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::{
    callers::{OverCallers, over_callers},
    curve::{Bend, Curve, curves},
    factor::{Estimate, Factor, FactorKind},
    further::{Further, further},
    replay::{Replayed, replay, too_large},
    scarce,
    sentence::sentence,
    thread::{ThreadFinding, threads},
    validity::{Problem, Validity, controls, validity},
    verdict::Verdict,
};
use crate::{
    chips::{
        design::{self, Estimated},
        influence::Influence,
    },
    record::{By, Candidate, Measured, PhaseKind, Slice, Treatment},
    units::Nanos,
};

/// The confidence of reported intervals.
const CONFIDENCE: f64 = 0.95;
/// The report shows no estimate with a larger standard error.
const MAX_ERROR: f64 = 0.5;
/// Verdicts use wider intervals than the report: about this many times as wide.
const WIDER: f64 = 2.0;
/// If a larger share of a delay than this seems to show, that is noise.
const MAX_BEYOND: f64 = 2.0;
/// No user waits for a decision for this many minutes.
const LONG: f64 = 180.0;

/// The findings of a record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    /// Time per unit without delays, in ns.
    pub time_per_unit_ns: Option<f64>,
    /// Whether arrivals set the throughput, and not the service; `None` where that is not known.
    pub open_loop: Option<bool>,
    /// Whether the experiment can be trusted.
    pub validity: Validity,
    /// The answer, in a sentence.
    pub verdict: String,
    /// Threads with tested functions, the one that is worth most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_thread: Vec<ThreadFinding>,
    /// The functions and groups, in the order of the report.
    pub factors: Vec<Factor>,
    /// Functions that were tested by their callers, each over all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_callers: Vec<OverCallers>,
    /// Further measured numbers, and how they moved with the delays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Further>,
}

/// Computes the findings of a record.
pub fn findings(measured: &Measured) -> Findings {
    let unit = unit(measured);
    let too_large = too_large(measured);
    let replayed = unit.filter(|_| too_large.is_none()).map(|unit| replay(measured, unit));
    let mut validity = validity(measured, replayed.as_ref().map(|of| &of.design));
    validity.problems.extend(too_large.map(Problem::fatal));
    let mut factors = replayed.as_ref().map(|replayed| tested(measured, replayed, unit)).unwrap_or_default();
    let faster = replayed.as_ref().and_then(|replayed| faster(&replayed.design, &factors));
    validity.problems.splice(0..0, faster.filter(|_| measured.invalid.is_none()).map(Problem::fatal));
    validity.holds = !validity.problems.iter().any(|problem| problem.fatal);
    let reacts = replayed.as_ref().is_some_and(|replayed| reacts(&replayed.design));
    let open_loop = open_loop(measured, reacts);
    // A thread sets the pace of all requests, and not of the slowest alone.
    let of_threads = replayed.as_ref().filter(|_| measured.by.quantile().is_none());
    let threads = of_threads.map(|of| threads(measured, of, &factors, unit)).unwrap_or_default();
    scarce::withhold(measured, &mut factors);
    as_their_thread(&threads, &mut factors);
    factors.extend(untested(measured, &factors, unit));
    let fatal = validity.problems.iter().find(|problem| problem.fatal);
    let withheld = if let Some(problem) = fatal {
        Some(problem.text.as_str())
    } else if let Some(why) = measured.aborted.as_deref().filter(|_| !was_tested(measured)) {
        Some(why)
    } else if open_loop.is_none() && factors.iter().any(|of| of.verdict != Verdict::Dismissed) {
        Some(
            "no function is shown to matter, and it is not known whether the service sets the throughput or \
             its clients do; if they ask again as soon as they have an answer, say --closed-loop",
        )
    } else {
        None
    };
    if let Some(why) = withheld {
        for factor in &mut factors {
            if matches!(factor.verdict, Verdict::Matters | Verdict::DoesNotMatter) {
                factor.verdict = Verdict::Undecided;
                factor.reason = Some(why.to_owned());
            }
        }
    }
    rank(&mut factors);
    let over_callers = over_callers(measured, &factors);
    let (by_thread, over_callers) =
        if withheld.is_some() { (Vec::new(), Vec::new()) } else { (threads, over_callers) };
    let whole = measured.by.whole();
    let verdict = sentence(&factors, &by_thread, withheld, measured.aborted.as_deref(), whole);
    let further = replayed.map(|replayed| further(measured, &replayed, &factors)).unwrap_or_default();
    Findings {
        time_per_unit_ns: unit,
        open_loop,
        validity,
        verdict,
        by_thread,
        factors,
        over_callers,
        further,
    }
}

/// Time per unit without delays, in ns: from the census or, if the record has none, from all slices without
/// delays.
pub(crate) fn unit(measured: &Measured) -> Option<f64> {
    let all = || measured.slices.iter().filter(|slice| slice.counts());
    if measured.by.quantile().is_some() {
        let census = influence(measured, measured.of_phase(PhaseKind::Census));
        return census.or_else(|| influence(measured, all())).map(|of| of.quantile());
    }
    controls(measured.of_phase(PhaseKind::Census), measured.by)
        .or_else(|| controls(all(), measured.by))
        .filter(|unit| *unit > 0.0)
}

/// The compared quantile, from those of the given slices that have no delays. `None` if no quantile is
/// compared, or if there are too few units.
pub(crate) fn influence<'a>(
    measured: &Measured,
    slices: impl Iterator<Item = &'a Slice>,
) -> Option<Influence> {
    let controls = slices.filter(|slice| slice.treatment == Treatment::Control);
    let (share, near) = (measured.by.quantile()?, measured.rules.max_slowdown);
    Influence::new(share, near, controls.map(|slice| slice.latencies.as_slice()))
}

/// Whether any function was delayed.
fn was_tested(measured: &Measured) -> bool {
    measured.slices.iter().any(|slice| !slice.doses.is_empty())
}

/// The chance that throughput is said to react to delays although it does not.
const REACTS_ERROR: f64 = 0.01;

/// Whether throughput reacts to the delays of all functions together, or of one of them. With many functions
/// the 95 % interval of one of them is often above zero by chance.
fn reacts(design: &design::Design) -> bool {
    let estimates: Vec<Estimated> = design.found().iter().filter_map(|found| found.estimated).collect();
    let error = REACTS_ERROR / 2.0;
    design.any().is_some_and(|any| is_above_zero(any, error))
        || estimates.iter().any(|of| is_above_zero(*of, error / estimates.len() as f64))
}

/// Whether an estimate is above zero, with this chance of an error.
fn is_above_zero(of: Estimated, error: f64) -> bool {
    let quantile = StudentsT::new(0.0, 1.0, of.freedom).map_or(f64::NAN, |t| t.inverse_cdf(1.0 - error));
    of.sensitivity > quantile * of.error
}

/// The interval of an estimate.
pub(crate) fn interval(of: Estimated) -> Estimate {
    let quantile =
        StudentsT::new(0.0, 1.0, of.freedom).map_or(f64::NAN, |t| t.inverse_cdf(0.5 + CONFIDENCE / 2.0));
    let half = quantile * of.error;
    Estimate { sensitivity: of.sensitivity, low: of.sensitivity - half, high: of.sensitivity + half }
}

/// The functions and groups that the experiment tested.
fn tested(measured: &Measured, replayed: &Replayed, unit: Option<f64>) -> Vec<Factor> {
    let time = test_time(measured);
    let mut curves = unit.map(|unit| curves(measured, &replayed.chips, unit)).unwrap_or_default();
    let factor = |(arm, (treatment, found)): (usize, (&Treatment, &design::Found))| {
        let mut factor = match treatment {
            Treatment::Function { candidate } => {
                Factor::for_candidate(measured, measured.candidates.get(*candidate as usize)?)
            }
            Treatment::Group { group } => {
                let group = measured.groups.get(*group as usize)?;
                Factor::for_group(measured, &group.name, &group.members)?
            }
            _ => return None,
        };
        factor.arm = Some(arm);
        factor.verdict = match found.verdict {
            Some((design::Verdict::Matters, _)) => Verdict::Matters,
            Some((design::Verdict::DoesNot, _)) => Verdict::DoesNotMatter,
            Some((design::Verdict::Faster, _)) | None => Verdict::Undecided,
        };
        match found.estimated {
            Some(estimated) if estimated.error <= MAX_ERROR => factor.set(interval(estimated), unit),
            Some(estimated) => {
                let high = interval(estimated).high;
                factor.worth_high = factor.share(unit).map(|share| (high * share).min(1.0));
            }
            None => {}
        }
        if factor.verdict == Verdict::Matters {
            factor.check_worth(measured.rules.worth);
        }
        factor.curve = curves.remove(&arm);
        let bend = factor.curve.as_ref().and_then(|curve| curve.bend);
        // If processors are scarce, any delay shows a little.
        let explained = scarce::explained(measured).unwrap_or(0.0);
        let is_hidden =
            factor.verdict == Verdict::DoesNotMatter && factor.low.is_some_and(|low| low <= explained);
        let longest = factor.curve.as_ref().filter(|_| is_hidden).and_then(Curve::longest_hidden);
        factor.slack_ns = bend.map(|bend| bend.slack_ns).or(longest);
        factor.reason = factor.reason.take().or(bend.map(beyond));
        if factor.verdict == Verdict::Undecided && factor.reason.is_none() {
            factor.reason = Some(why_undecided(&factor, found, measured, unit, time));
        }
        Some(factor)
    };
    replayed.chips.arms.iter().zip(replayed.design.found()).enumerate().filter_map(factor).collect()
}

/// Describes a bend.
fn beyond(bend: Bend) -> String {
    let slack = Nanos(bend.slack_ns.max(0.0) as u64);
    if (0.0..=MAX_BEYOND).contains(&bend.beyond) {
        format!("delays beyond {slack} a unit show, {:.0} % of them", bend.beyond * 100.0)
    } else {
        format!("delays beyond {slack} a unit show")
    }
}

/// Marks undecided functions of a thread that sets the pace.
fn as_their_thread(threads: &[ThreadFinding], factors: &mut [Factor]) {
    for factor in factors.iter_mut().filter(|of| of.verdict == Verdict::Undecided) {
        let thread =
            threads.iter().find(|of| of.sets_pace && factor.arm.is_some_and(|arm| of.arms.contains(&arm)));
        let Some(thread) = thread.filter(|of| of.alike != Some(false)) else { continue };
        factor.as_thread = true;
        factor.reason = Some(format!(
            "as its thread: {:.2} of all delays there show; of this function alone too little is known",
            thread.sensitivity
        ));
    }
}

/// The length of the phases with delays, in ns.
fn test_time(measured: &Measured) -> f64 {
    let tests =
        measured.phases.iter().filter(|phase| !matches!(phase.kind, PhaseKind::Census | PhaseKind::Recover));
    tests.map(|phase| phase.end_ns.0.saturating_sub(phase.start_ns.0) as f64).sum()
}

/// Why there is no verdict, and how long one would take: an interval is half as wide after four times the
/// time.
fn why_undecided(
    factor: &Factor,
    found: &design::Found,
    measured: &Measured,
    unit: Option<f64>,
    time: f64,
) -> String {
    let Some(of) = found.estimated else {
        return "too little to tell: it was hardly delayed".to_owned();
    };
    let rules = &measured.rules;
    let share = factor.share(unit);
    let is_worth_it =
        share.map_or(of.sensitivity >= rules.threshold, |share| of.sensitivity * share >= rules.worth);
    // Half the width that an interval must have to show that the function matters, that its delays do not
    // show, or that it is worth too little.
    let to_matter = if is_worth_it { of.sensitivity } else { 0.0 };
    let not_to_show = rules.threshold - of.sensitivity.abs();
    let not_to_be_worth = share.map_or(0.0, |share| rules.worth / share - of.sensitivity);
    let wanted = to_matter.max(not_to_show).max(not_to_be_worth) / WIDER;
    let minutes = time * (of.error / wanted.max(f64::MIN_POSITIVE)).powi(2) * 4.0 / 60e9;
    let first = if of.error > MAX_ERROR { "too little to tell; " } else { "" };
    if wanted > 0.0 && time > 0.0 && minutes < LONG {
        format!("{first}a decision would take some {:.0} min in all (--for)", minutes.ceil().max(1.0))
    } else {
        format!(
            "{first}with this much noise, a decision takes hours: use a quieter machine, or a steadier load"
        )
    }
}

/// Why a function is dismissed.
const TOO_LITTLE: &str = "own time is less than what would be worth it";

/// Whether waits are at least four fifths of the sum of waits and own time.
fn mostly_waits((waited, own): (f64, f64)) -> bool {
    waited > 0.0 && waited >= 4.0 * own
}

/// The functions that were not tested, with the reason.
fn untested(measured: &Measured, tested: &[Factor], unit: Option<f64>) -> Vec<Factor> {
    let asked: BTreeSet<u32> = measured.arms.iter().flat_map(|arm| measured.members(*arm)).collect();
    let tested: BTreeSet<_> = tested.iter().map(|of| (&of.name, &of.caller, &of.file, of.line)).collect();
    let is_tested = |number: u32, of: &Factor| {
        asked.contains(&number) || tested.contains(&(&of.name, &of.caller, &of.file, of.line))
    };
    let factor = |(number, candidate): (u32, &Candidate)| {
        let mut factor = Factor::for_candidate(measured, candidate);
        if is_tested(number, &factor) {
            return None;
        }
        let share = factor.share(unit);
        if candidate.calls == 0 && candidate.left_out().is_none() {
            factor.verdict = Verdict::Dismissed;
            factor.reason = Some("not called".to_owned());
        } else if share.is_some_and(|share| share < measured.rules.worth) && !measured.are_named() {
            factor.verdict = Verdict::Dismissed;
            let mostly_waits =
                factor.waited_ns_per_unit.zip(factor.own_ns_per_unit).is_some_and(mostly_waits);
            let why = if mostly_waits { "nearly all of its time is waiting" } else { TOO_LITTLE };
            factor.reason = Some(why.to_owned());
        } else if let Some(why) = candidate.left_out() {
            factor.reason = Some(why.to_owned());
        } else if unit.is_some_and(|unit| measured.is_too_often(candidate, unit)) {
            factor.reason = Some(format!(
                "it is called so often that the least delay of a call, {}, would slow units down too much; \
                 frequency=N on its line would help",
                candidate.floor_ns
            ));
        } else {
            factor.reason = Some("the experiment ended before it was tried".to_owned());
        }
        Some(factor)
    };
    let numbered = (0..).zip(&measured.candidates);
    numbered.filter_map(factor).collect()
}

/// The reason to withhold all verdicts, if units take less time with delays.
pub(crate) fn faster(design: &design::Design, factors: &[Factor]) -> Option<String> {
    let is_faster = |of: &&Factor| {
        let found = of.arm.and_then(|arm| design.found().get(arm));
        found.is_some_and(|found| matches!(found.verdict, Some((design::Verdict::Faster, _))))
    };
    let names: Vec<&str> = factors.iter().filter(is_faster).map(|of| of.name.as_str()).collect();
    let what = match names[..] {
        [] => return None,
        [name] => name.to_owned(),
        [name, ..] => format!("{name} and {} more", names.len() - 1),
    };
    Some(format!(
        "units took less time with delays of {what} than without: the counter does not measure work. A \
         service may answer \"busy\" at once when it is slower, or its clients may ask for less: count what \
         only complete answers do"
    ))
}

/// Puts the service's own code before libraries and native code. In each, functions that matter come first,
/// and then the others, by worth: the estimate of a function that left the test after a few slices can exceed
/// those of functions that matter, by chance. Undecided ones go by the most that they may be worth.
fn rank(factors: &mut [Factor]) {
    let place = |of: &Factor| {
        let is_dismissed = of.verdict == Verdict::Dismissed;
        (is_dismissed, of.kind == FactorKind::Group, of.origin, of.verdict != Verdict::Matters)
    };
    let worth = |of: &Factor| {
        let worth = if of.verdict == Verdict::Undecided { of.worth_high } else { of.worth };
        worth.unwrap_or(-1.0)
    };
    let own = |of: &Factor| of.own_ns_per_unit.unwrap_or(0.0);
    factors.sort_by(|a, b| {
        (place(a).cmp(&place(b)))
            .then(worth(b).total_cmp(&worth(a)))
            .then(own(b).total_cmp(&own(a)))
            .then_with(|| (&a.name, &a.file, a.line).cmp(&(&b.name, &b.file, b.line)))
    });
}

/// A service that has no unit under way for less than this share of the time is saturated.
const SATURATED: f64 = 0.05;

/// Whether arrivals set the throughput. They do not if a delay changes it, or if there is always work.
fn open_loop(measured: &Measured, reacts: bool) -> Option<bool> {
    if measured.by != By::Throughput && !measured.rules.closed_loop {
        return Some(true);
    }
    let is_saturated = idle(measured).is_some_and(|share| share < SATURATED);
    (measured.rules.closed_loop || reacts || is_saturated).then_some(false)
}

/// The share of the census in which no unit was under way.
pub fn idle(measured: &Measured) -> Option<f64> {
    let census = || measured.of_phase(PhaseKind::Census);
    let idle: Option<f64> = census().map(|slice| slice.idle_ns).sum();
    let span: f64 = census().map(Slice::span).sum();
    // Negative: several units were under way at once, and it is unknown when there was none.
    idle.filter(|idle| span > 0.0 && *idle >= 0.0).map(|idle| idle / span)
}

#[cfg(test)]
mod tests;
