//! What follows from a record: for each function what it is worth, how sure that is, and what is said of it.

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

/// The intervals that are told.
const CONFIDENCE: f64 = 0.95;
/// An estimate with a larger standard error has nothing to say.
const MAX_ERROR: f64 = 0.5;
/// Verdicts take wider intervals than those that are told, about so many times.
const WIDER: f64 = 2.0;
/// A larger share of a delay than this does not show: noise does.
const MAX_BEYOND: f64 = 2.0;
/// Nobody waits for so many minutes.
const LONG: f64 = 180.0;

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
    /// Threads with functions that the experiment asked about, the one that is worth most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_thread: Vec<ThreadFinding>,
    /// By worth, the most first.
    pub factors: Vec<Factor>,
    /// Functions that were tested by their callers, over all of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_callers: Vec<OverCallers>,
    /// What was measured besides, and how it moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Further>,
}

/// What follows from a record.
pub fn findings(measured: &Measured) -> Findings {
    let unit = unit(measured);
    let too_large = too_large(measured);
    let replayed = unit.filter(|_| too_large.is_none()).map(|unit| replay(measured, unit));
    let mut validity = validity(measured, replayed.as_ref().map(|of| &of.design));
    validity.problems.extend(too_large.map(Problem::fatal));
    let mut factors = replayed.as_ref().map(|replayed| tried(measured, replayed, unit)).unwrap_or_default();
    let faster = replayed.as_ref().and_then(|replayed| faster(&replayed.design, &factors));
    validity.problems.splice(0..0, faster.filter(|_| measured.invalid.is_none()).map(Problem::fatal));
    validity.holds = !validity.problems.iter().any(|problem| problem.fatal);
    let any = replayed.as_ref().and_then(|replayed| replayed.design.any());
    let open_loop = open_loop(measured, reacts(any) || factors.iter().any(shows));
    // No thread sets the pace of the slowest requests alone.
    let of_threads = replayed.as_ref().filter(|_| measured.by.quantile().is_none());
    let threads = of_threads.map(|of| threads(measured, of, &factors, unit)).unwrap_or_default();
    scarce::withhold(measured, &mut factors);
    as_their_thread(&threads, &mut factors);
    factors.extend(untried(measured, &factors, unit));
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

/// Time per unit without delays, in ns: that of the census, or where a record has none, of all slices without
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

/// The quantile that is compared, of the units of these slices, as far as those have no delays; `None` if no
/// quantile is compared, or too little is known of it.
pub(crate) fn influence<'a>(
    measured: &Measured,
    slices: impl Iterator<Item = &'a Slice>,
) -> Option<Influence> {
    let controls = slices.filter(|slice| slice.treatment == Treatment::Control);
    let (share, near) = (measured.by.quantile()?, measured.rules.max_slowdown);
    Influence::of(share, near, controls.map(|slice| slice.latencies.as_slice()))
}

/// Whether functions were tested: then there is a phase after the census.
fn was_tested(measured: &Measured) -> bool {
    measured.slices.iter().any(|slice| !slice.doses.is_empty())
}

fn shows(of: &Factor) -> bool {
    of.low.is_some_and(|low| low > 0.0)
}

/// Whether delays show, whichever function has them.
fn reacts(any: Option<Estimated>) -> bool {
    any.is_some_and(|any| interval(any).low > 0.0)
}

/// The interval of an estimate.
pub(crate) fn interval(of: Estimated) -> Estimate {
    let quantile =
        StudentsT::new(0.0, 1.0, of.freedom).map_or(f64::NAN, |t| t.inverse_cdf(0.5 + CONFIDENCE / 2.0));
    let half = quantile * of.error;
    Estimate { sensitivity: of.sensitivity, low: of.sensitivity - half, high: of.sensitivity + half }
}

/// What was asked about.
fn tried(measured: &Measured, replayed: &Replayed, unit: Option<f64>) -> Vec<Factor> {
    let time = test_time(measured);
    let mut curves = unit.map(|unit| curves(measured, &replayed.chips, unit)).unwrap_or_default();
    let factor = |(arm, (treatment, found)): (usize, (&Treatment, &design::Found))| {
        let mut factor = match treatment {
            Treatment::Function { candidate } => {
                Factor::of_candidate(measured, measured.candidates.get(*candidate as usize)?)
            }
            Treatment::Group { group } => {
                let group = measured.groups.get(*group as usize)?;
                Factor::of_several(measured, &group.name, &group.members)?
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
        // Want of processors makes any delay show a little.
        let explained = scarce::explains(measured).unwrap_or(0.0);
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

/// What is said of a bend.
fn beyond(bend: Bend) -> String {
    let slack = Nanos(bend.slack_ns.max(0.0) as u64);
    if (0.0..=MAX_BEYOND).contains(&bend.beyond) {
        format!("delays beyond {slack} a unit show, {:.0} % of them", bend.beyond * 100.0)
    } else {
        format!("delays beyond {slack} a unit show")
    }
}

/// Says of undecided functions that their thread is known.
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

/// Time with delays, in ns.
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
    // Half widths at which it would be shown to matter, not to show, or to be worth too little.
    let to_matter = if is_worth_it { of.sensitivity } else { 0.0 };
    let not_to_show = rules.threshold - of.sensitivity.abs();
    let not_to_be_worth = share.map_or(0.0, |share| rules.worth / share - of.sensitivity);
    let wanted = to_matter.max(not_to_show).max(not_to_be_worth) / WIDER;
    let minutes = time * (of.error / wanted.max(f64::MIN_POSITIVE)).powi(2) * 4.0 / 60e9;
    let first = if of.error > MAX_ERROR { "too little to tell; " } else { "" };
    if wanted > 0.0 && time > 0.0 && minutes < LONG {
        format!("{first}a decision would take some {:.0} min in all (--for)", minutes.ceil().max(1.0))
    } else {
        format!("{first}this much noise leaves it open for hours: a quieter machine, or a steadier load")
    }
}

/// Why a function is dismissed.
const TOO_LITTLE: &str = "own time is less than what would be worth it";

/// Whether four fifths of these times, waits and others, are waits.
fn mostly_waits((waited, own): (f64, f64)) -> bool {
    waited > 0.0 && waited >= 4.0 * own
}

/// Functions that were not asked about, and why.
fn untried(measured: &Measured, tried: &[Factor], unit: Option<f64>) -> Vec<Factor> {
    let asked: BTreeSet<u32> = measured.arms.iter().flat_map(|arm| measured.members(*arm)).collect();
    let tried: BTreeSet<_> = tried.iter().map(|of| (&of.name, &of.caller, &of.file, of.line)).collect();
    let is_tried = |number: u32, of: &Factor| {
        asked.contains(&number) || tried.contains(&(&of.name, &of.caller, &of.file, of.line))
    };
    let factor = |(number, candidate): (u32, &Candidate)| {
        let mut factor = Factor::of_candidate(measured, candidate);
        if is_tried(number, &factor) {
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
            let why = if mostly_waits { "it waits, and nearly all of its time is that" } else { TOO_LITTLE };
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

/// Why no verdict stands, where units take less time with delays.
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
        "units took less time with delays of {what} than without: what is counted is no measure of work. A \
         service may answer \"busy\" at once when it is slower, or its clients may ask for less: count what \
         is done only for answers that are none of those"
    ))
}

/// The service's own code comes before libraries and native code. In each, what is shown to matter comes
/// first, and then all others, by worth: the estimate of a function that was dropped early, after a few
/// slices, can be above all of those by chance.
fn rank(factors: &mut [Factor]) {
    let place = |of: &Factor| {
        let is_dismissed = of.verdict == Verdict::Dismissed;
        (is_dismissed, of.kind == FactorKind::Group, of.origin, of.verdict != Verdict::Matters)
    };
    let worth = |of: &Factor| of.worth.unwrap_or(-1.0);
    let own = |of: &Factor| of.own_ns_per_unit.unwrap_or(0.0);
    factors.sort_by(|a, b| {
        (place(a).cmp(&place(b)))
            .then(worth(b).total_cmp(&worth(a)))
            .then(own(b).total_cmp(&own(a)))
            .then_with(|| (&a.name, &a.file, a.line).cmp(&(&b.name, &b.file, b.line)))
    });
}

/// Without a unit under way for less than this share of the time, a service does all that it can.
const SATURATED: f64 = 0.05;

/// Whether arrivals set the throughput. They do not where a delay changes it, nor where there is always work.
fn open_loop(measured: &Measured, reacts: bool) -> Option<bool> {
    if measured.by != By::Throughput && !measured.rules.closed_loop {
        return Some(true);
    }
    let is_saturated = idle(measured).is_some_and(|share| share < SATURATED);
    (measured.rules.closed_loop || reacts || is_saturated).then_some(false)
}

/// For which share of the time without delays no unit was under way.
pub fn idle(measured: &Measured) -> Option<f64> {
    let census = || measured.of_phase(PhaseKind::Census);
    let idle: Option<f64> = census().map(|slice| slice.idle_ns).sum();
    let span: f64 = census().map(Slice::span).sum();
    // Less than nothing: several were under way at once, and nothing is known of when there was none.
    idle.filter(|idle| span > 0.0 && *idle >= 0.0).map(|idle| idle / span)
}

#[cfg(test)]
mod tests;
