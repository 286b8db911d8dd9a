//! What follows from a record: for each function what it is worth, how sure that is, and what is said of it.

use serde::Serialize;

use super::{
    contrast::{Contrast, contrasts},
    curve::{Curve, curve},
    estimate::{Estimate, estimate},
    factor::{Factor, FactorKind},
    faster::faster,
    further::{Further, further},
    hinge::hinge,
    sentence::sentence,
    shared::{is_part, joined},
    untried::{alike, left, together},
    validity::{Problem, Validity, controls, validity},
    verdict::{Judged, Trial, Verdict, before, is_above, judge},
};
use crate::{
    record::{By, Measured, PhaseKind, Slice, Treatment},
    units::Nanos,
};

/// The intervals that are told.
pub(super) const CONFIDENCE: f64 = 0.95;

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
    /// What was measured besides, and how it moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Further>,
}

/// The intervals of the looks are wider than those that are told.
const LATE_LOOKS: f64 = 1.2;
/// Why nothing is said of a function with whose delays units are done faster.
pub(super) const LESS_TIME: &str = "units took less time with delays than without";
/// Nobody waits for so many minutes.
const LONG: f64 = 180.0;

/// A factor, and what it was tried by.
struct Tried {
    treatment: Treatment,
    factor: Factor,
    trial: Trial,
}

/// What follows from a record.
pub fn findings(measured: &Measured) -> Findings {
    let mut validity = validity(measured);
    let unit = controls(measured.of_phase(PhaseKind::Confirm), measured.by)
        .or_else(|| controls(measured.slices.iter().filter(|slice| slice.counts()), measured.by));
    let mut tried = tried(measured, unit);
    let trials: Vec<Trial> = tried.iter().map(|of| of.trial.clone()).collect();
    let alike = alike(measured);
    let judged = judge(&trials, &measured.rules, blocks(measured));
    let sped_up = sped_up(measured, &tried, &judged).filter(|_| measured.invalid.is_none());
    validity.problems.splice(0..0, sped_up.map(Problem::fatal));
    validity.holds = !validity.problems.iter().any(|problem| problem.fatal);
    for (of, judged) in tried.iter_mut().zip(judged) {
        of.fill(measured, judged, unit, alike);
        of.say_how_long(measured);
    }
    join(measured, &mut tried);
    let mut factors: Vec<Factor> = tried.into_iter().map(|of| of.factor).collect();
    let together = together(measured);
    factors.extend(left(measured, unit, &together, alike));
    // A bend says nothing of it: with enough delay, a service that waits for requests has no time to wait.
    let reacts = factors.iter().any(|of| of.shows || matters(of));
    let open_loop = open_loop(measured, reacts);
    let fatal = validity.problems.iter().find(|problem| problem.fatal);
    let withheld = if let Some(problem) = fatal {
        Some(problem.text.as_str())
    } else if let Some(why) = measured.aborted.as_deref().filter(|_| !was_compared(measured)) {
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
            if matches!(factor.verdict, Verdict::Matters | Verdict::DoesNotMatter | Verdict::Jointly) {
                factor.verdict = Verdict::Undecided;
                factor.reason = Some(why.to_owned());
            }
        }
    }
    rank(&mut factors);
    // The functions of a joined group are counted, and not the group as well.
    let is_joined =
        |of: &Factor| joined(measured).any(|group| of.treatment == Some(Treatment::Group { group }));
    let counted: Vec<&Factor> = factors.iter().filter(|of| !is_joined(of)).collect();
    let verdict = sentence(&counted, withheld, measured.aborted.as_deref());
    let further = further(measured, unit, &factors);
    Findings { time_per_unit_ns: unit, open_loop, validity, verdict, factors, further }
}

/// Whether functions were compared, one by one or, where nothing showed, all together: then there is a phase
/// after the titration.
fn was_compared(measured: &Measured) -> bool {
    let mut phases = measured.phases.iter();
    phases.any(|phase| matches!(phase.kind, PhaseKind::Screen | PhaseKind::Confirm | PhaseKind::Recover))
}

/// Is shown to matter, alone or with others.
fn matters(of: &Factor) -> bool {
    matches!(of.verdict, Verdict::Matters | Verdict::Jointly)
}

/// What is shown to matter comes first, and then all others, by worth: the estimate of a function that was
/// dropped early, after a few slices, can be above all of those by chance.
fn rank(factors: &mut [Factor]) {
    let place = |of: &Factor| (of.verdict == Verdict::Dismissed, of.kind == FactorKind::Group, !matters(of));
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
    if measured.by == By::Latency && !measured.rules.closed_loop {
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

/// Of functions that share slack, none matters alone. Those that do together are those of the smallest groups
/// that matter: each half of one may be worth too little.
fn join(measured: &Measured, tried: &mut [Tried]) {
    let verdict = |tried: &[Tried], group: u32| {
        tried.iter().find(|of| of.treatment == Treatment::Group { group }).map(|of| of.factor.verdict)
    };
    let (mattering, others): (Vec<u32>, Vec<u32>) =
        joined(measured).partition(|group| verdict(tried, *group) == Some(Verdict::Matters));
    for group in others {
        for of in tried.iter_mut().filter(|of| of.treatment == Treatment::Group { group }) {
            let slack = of.factor.slack_ns.map(|slack| Nanos(slack.max(0.0) as u64));
            let said = |slack| format!("they share slack: together they are hidden up to {slack} a unit");
            of.factor.reason = slack.map(said).or(of.factor.reason.take());
        }
    }
    for &group in &mattering {
        let is_smallest = !mattering.iter().any(|other| is_part(measured, *other, group));
        let members = measured.members(Treatment::Group { group });
        let is_of_it = |of: Treatment| match of {
            Treatment::Function { candidate } => is_smallest && members.contains(&candidate),
            other => other == Treatment::Group { group },
        };
        for of in tried.iter_mut().filter(|of| is_of_it(of.treatment)) {
            of.factor.verdict = Verdict::Jointly;
            of.factor.reason = Some("none of them matters alone; together they do".to_owned());
        }
    }
}

/// Whether there is a verdict about everything that was looked at one by one.
pub fn is_decided(measured: &Measured) -> bool {
    let verdicts = verdicts_of(measured);
    !verdicts.is_empty() && verdicts.iter().all(|(_, verdict)| *verdict != Verdict::Undecided)
}

/// The verdicts so far about what was looked at one by one.
pub(super) fn verdicts_of(measured: &Measured) -> Vec<(Treatment, Verdict)> {
    let unit = controls(measured.of_phase(PhaseKind::Confirm), measured.by);
    let tried = tried(measured, unit);
    let trials: Vec<Trial> = tried.iter().map(|of| of.trial.clone()).collect();
    let judged = judge(&trials, &measured.rules, blocks(measured));
    tried.iter().zip(judged).map(|(of, judged)| (of.treatment, judged.verdict)).collect()
}

/// Why what is counted is no measure of work, if that was found out.
pub fn no_measure(measured: &Measured) -> Option<String> {
    let tried = tried(measured, controls(measured.of_phase(PhaseKind::Confirm), measured.by));
    let trials: Vec<Trial> = tried.iter().map(|of| of.trial.clone()).collect();
    sped_up(measured, &tried, &judge(&trials, &measured.rules, blocks(measured)))
}

fn sped_up(measured: &Measured, tried: &[Tried], judged: &[Judged]) -> Option<String> {
    let is_faster = tried.iter().zip(judged).filter(|(_, judged)| judged.faster);
    let names: Vec<&str> = is_faster.map(|(of, _)| of.factor.name.as_str()).collect();
    faster(measured, &names)
}

/// Blocks of the last phase that are done, or begun.
fn blocks(measured: &Measured) -> u32 {
    measured.of_phase(PhaseKind::Confirm).map(|slice| slice.block.saturating_add(1)).max().unwrap_or(0)
}

/// What was looked at one by one, with the group of all else.
fn tried(measured: &Measured, unit: Option<f64>) -> Vec<Tried> {
    let factor = |treatment: Treatment| match treatment {
        Treatment::Function { candidate } => {
            let candidate = measured.candidates.get(candidate as usize)?;
            Some(Factor::of_candidate(measured, candidate))
        }
        Treatment::Group { group } => {
            let group = measured.groups.get(group as usize)?;
            Factor::of_several(measured, &group.name, &group.members)
        }
        Treatment::Rest => Factor::of_several(measured, "everything else", &measured.rest()),
        Treatment::Control | Treatment::Placebo | Treatment::Several => None,
    };
    let tried = |treatment: Treatment| {
        let factor = Factor { treatment: Some(treatment), ..factor(treatment)? };
        let contrasts = contrasts(measured.of_phase(PhaseKind::Confirm), treatment, u32::MAX, measured.by);
        let share = factor.share(unit);
        Some(Tried { treatment, factor, trial: Trial { contrasts, share } })
    };
    measured.treated().into_iter().filter_map(tried).collect()
}

impl Tried {
    /// `alike` is the sensitivity of all functions, where it is one: more slices know of it than of one.
    fn fill(&mut self, measured: &Measured, judged: Judged, unit: Option<f64>, alike: Option<Estimate>) {
        let Judged { verdict, shows, .. } = judged;
        (self.factor.verdict, self.factor.shows) = (verdict, shows);
        let bend = hinge(&self.trial.contrasts);
        self.factor.curve = curve(measured, self.treatment, bend);
        let seen = before(self.trial.contrasts.clone(), bend);
        // From there on it shows, where it does not from the beginning.
        let bend = bend.filter(|bend| bend.low > 0.0);
        let factor = &mut self.factor;
        if let Some(found) = estimate(&seen, CONFIDENCE) {
            let is_alike = |all: &Estimate| {
                let is_within = found.low <= all.sensitivity && all.sensitivity <= found.high;
                is_within && all.high - all.low < found.high - found.low
            };
            factor.set(alike.filter(is_alike).unwrap_or(found), unit);
        }
        // More slices than its own know what it is worth, where all functions show alike.
        let is_worth_little = factor.worth_high.is_some_and(|worth| worth < measured.rules.worth);
        let is_worth_it = factor.worth.map(|worth| worth >= measured.rules.worth);
        factor.verdict = match (verdict, is_worth_it) {
            (Verdict::Matters, _) if is_worth_little => Verdict::DoesNotMatter,
            (Verdict::Matters, Some(false)) => Verdict::Undecided,
            (Verdict::Undecided, Some(true)) if shows => Verdict::Matters,
            _ => verdict,
        };
        let interval = factor.low.zip(factor.high);
        let is_hidden =
            !shows && interval.is_some_and(|(low, high)| low <= 0.0 && high < measured.rules.threshold);
        let longest = || longest_hidden(&seen, factor.curve.as_ref());
        factor.slack_ns = match (bend, verdict) {
            (Some(bend), _) => Some(bend.slack),
            // What shows is not hidden, though it be worth little.
            (None, Verdict::DoesNotMatter) if is_hidden => Some(longest()).filter(|ns| *ns > 0.0),
            (None, _) => None,
        };
        let is_faster = factor.high.is_some_and(|high| high < 0.0);
        factor.reason = if is_faster {
            Some(LESS_TIME.to_owned())
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

    /// Says how long a decision would take, where there is none: an interval is half as wide after four times
    /// the time.
    fn say_how_long(&mut self, measured: &Measured) {
        let factor = &mut self.factor;
        let (Verdict::Undecided, None, Some(found)) =
            (factor.verdict, &factor.reason, factor.sensitivity.zip(factor.low.zip(factor.high)))
        else {
            return;
        };
        let (sensitivity, (low, high)) = found;
        let rules = &measured.rules;
        let share = self.trial.share;
        // Half widths at which it would be shown to matter, not to show, or to be worth too little.
        let to_matter = if is_above(sensitivity, share, rules) { sensitivity / LATE_LOOKS } else { 0.0 };
        let not_to_show = (rules.threshold - sensitivity.abs()) / LATE_LOOKS;
        let not_to_be_worth = share.map_or(0.0, |share| (rules.worth / share - sensitivity) / LATE_LOOKS);
        let wanted = to_matter.max(not_to_show).max(not_to_be_worth);
        let took: f64 = measured
            .phases
            .iter()
            .filter(|phase| phase.kind == PhaseKind::Confirm)
            .map(|phase| phase.end_ns.0.saturating_sub(phase.start_ns.0) as f64)
            .sum();
        let half = (high - low) / 2.0;
        let shows = if factor.shows { "it shows, but may be too little; " } else { "" };
        if wanted > 0.0 && took > 0.0 {
            let minutes = took * (half / wanted).powi(2) / 60e9;
            factor.reason = Some(if minutes < LONG {
                format!("{shows}a decision would take some {} in all (--for)", amount(minutes))
            } else {
                format!(
                    "{shows}this much noise leaves it open for hours: a quieter machine, or a steadier load"
                )
            });
        }
    }
}

/// The longest of these delays that is shorter than the longest ones of which half or more shows.
fn longest_hidden(seen: &[Contrast], curve: Option<&Curve>) -> f64 {
    let doses = curve.map_or(&[][..], |curve| &curve.doses);
    let showing = doses.iter().rev().take_while(|dose| dose.time_ns * 2.0 >= dose.delay_ns);
    let first = showing.last().map_or(f64::INFINITY, |dose| dose.delay_ns);
    // Delays of one dose differ a little.
    let below = first * 0.9;
    seen.iter().map(|of| of.delay).filter(|delay| *delay < below).fold(0.0, f64::max)
}

/// `3 min`.
fn amount(minutes: f64) -> String {
    format!("{:.0} min", minutes.ceil().max(1.0))
}

#[cfg(test)]
mod tests {
    use super::{super::curve::Dose, *};
    use crate::{simulated::Function, testing};

    #[test]
    fn what_shows_is_not_hidden() {
        let seen: Vec<Contrast> = (0..)
            .zip([100.0, 200.0, 205.0, 400.0])
            .map(|(block, delay)| Contrast { block, time: 0.0, delay })
            .collect();
        let curve = |times: [f64; 3]| Curve {
            doses: [100.0, 202.0, 400.0]
                .into_iter()
                .zip(times)
                .map(|(delay_ns, time_ns)| Dose { delay_ns, time_ns, low_ns: None, high_ns: None, blocks: 1 })
                .collect(),
            bend: None,
        };
        assert_eq!(longest_hidden(&seen, Some(&curve([0.0, 1.0, 2.0]))), 400.0);
        assert_eq!(longest_hidden(&seen, Some(&curve([0.0, 1.0, 210.0]))), 205.0);
        assert_eq!(longest_hidden(&seen, Some(&curve([90.0, 1.0, 210.0]))), 205.0, "noise of a short one");
        assert_eq!(longest_hidden(&seen, Some(&curve([90.0, 180.0, 210.0]))), 0.0);
        assert_eq!(longest_hidden(&seen, None), 400.0);
    }

    #[test]
    fn what_is_shown_comes_before_what_chance_estimates_higher() {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let record = testing::measured(&[("f", function, 100)]);
        let of = |name: &str, verdict, worth| {
            let factor = Factor::of_candidate(&record, &record.candidates[0]);
            Factor { name: name.to_owned(), verdict, worth: Some(worth), ..factor }
        };
        let group = Factor { kind: FactorKind::Group, ..of("both", Verdict::Jointly, 0.9) };
        let mut factors = [
            of("dropped early", Verdict::Undecided, 0.08),
            of("most", Verdict::Matters, 0.04),
            of("dismissed", Verdict::Dismissed, 0.0),
            of("hidden", Verdict::DoesNotMatter, 0.01),
            group,
            of("with another", Verdict::Jointly, 0.02),
            of("some", Verdict::Matters, 0.03),
        ];
        rank(&mut factors);
        let names = factors.each_ref().map(|of| of.name.as_str());
        assert_eq!(names, ["most", "some", "with another", "dropped early", "hidden", "both", "dismissed"]);
    }
}
