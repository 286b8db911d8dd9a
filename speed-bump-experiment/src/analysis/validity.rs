//! Whether an experiment can be trusted: the results of its own checks.

use serde::Serialize;

use super::{failed::more_failed, load, pace::is_slower, steps};
use crate::{
    TargetKind,
    chips::design::Design,
    record::{Around, By, Census, Mark, Measured, PhaseKind, Slice, Treatment},
    units::Nanos,
};

/// If a larger share of all slices does not count, the rest cannot be trusted.
const MAX_DROPPED: f64 = 0.25;
/// Delivered delays that differ from requested ones by a larger share are reported.
const OFF: f64 = 0.1;
/// If the bound on threads left out a larger share of the delays, that is reported.
const LEFT_OUT: f64 = 0.01;
/// If processors are busy for a larger share of the time, programs wait for them.
const BUSY: f64 = 0.9;
/// Clocks differ by less than this, in ns, unless one was set.
const CLOCK_STEP: i64 = 100_000_000;
/// If timing calls, or sampling, slowed units down by a larger share, that is reported.
const COSTS: f64 = 0.03;
/// A larger drift is reported.
const DRIFT: f64 = 0.1;
/// If units take more than this many times as long as before, or less than one part in this many, the load or
/// the service is a different one.
const ANOTHER: f64 = 2.0;
/// The most changes of the load that are reported.
const LOAD_CHANGES: usize = 5;
/// With fewer chips, the drift is unknown.
const MIN_CHIPS: usize = 40;

/// What the checks found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validity {
    /// Whether verdicts stand.
    pub holds: bool,
    /// Why they do not stand, and what else readers should know.
    pub problems: Vec<Problem>,
    /// Delivered delay over requested delay.
    pub delivered_over_asked: Option<f64>,
    /// Slices that count.
    pub slices: usize,
    /// Slices that do not, by reason.
    pub dropped: Vec<Dropped>,
    /// By what share a unit took longer in the second half of the chips than in the first, minus what doses
    /// added.
    pub drift: Option<f64>,
    /// By what share a unit took longer after the experiment than before it.
    pub recovery: Option<f64>,
}

/// Slices that do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Mark that the slices have in the record.
    pub reason: Mark,
    /// How many.
    pub slices: usize,
}

/// Something that readers should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Whether it withholds all verdicts.
    pub fatal: bool,
    /// Sentence for the report: the problem, and the way out where there is one.
    pub text: String,
}

impl Problem {
    /// A problem that withholds all verdicts.
    pub(super) fn fatal(text: String) -> Self {
        Self { fatal: true, text }
    }
}

/// Checks a record.
pub fn validity(measured: &Measured, design: Option<&Design>) -> Validity {
    let mut problems: Vec<Problem> = measured.not_valid().map(Problem::fatal).into_iter().collect();
    let mut fatal = |is: bool, text: String| {
        if is {
            problems.push(Problem { fatal: true, text });
        }
    };
    let dropped = dropped(measured);
    // Slices of a repeated census, and slices without the load, cost nothing but time.
    let is_lost = |of: &&Dropped| match of.reason {
        Mark::Late | Mark::Guarded => true,
        Mark::Unsettled | Mark::Load => false,
    };
    let lost: usize = dropped.iter().filter(is_lost).map(|of| of.slices).sum();
    let of_all = lost as f64 / measured.slices.len().max(1) as f64;
    fatal(
        of_all > MAX_DROPPED,
        format!("{lost} of {} slices do not count: take longer slices (--slice)", measured.slices.len()),
    );
    let drift = design.and_then(drift);
    if let Some(drift) = drift {
        let text = format!(
            "without delays, the time per unit changed by {:+.0} % in the second half of the experiment: the \
             load or the service was a different one",
            drift * 100.0
        );
        fatal(!(1.0 / ANOTHER..ANOTHER).contains(&(1.0 + drift)), text);
    }
    for text in &measured.missed_calls {
        fatal(true, format!("calls were missed, so that neither counts nor times are whole: {text}"));
    }
    if let Some(inner) = &measured.inner_unit {
        fatal(inner.is_changed(), steps::changed(inner, &measured.unit));
    }
    let mut tell = |is: bool, text: String| {
        if is {
            problems.push(Problem { fatal: false, text });
        }
    };
    if let Some(inner) = measured.inner_unit.as_ref().filter(|inner| !inner.is_changed()) {
        tell(true, steps::counted(inner, &measured.unit));
    }
    let delivered_over_asked = delivered_over_asked(measured);
    if let Some(ratio) = delivered_over_asked {
        let off = (ratio - 1.0).abs() > OFF;
        tell(
            off,
            format!(
                "calls got {:.0} % of the requested delay; the analysis uses the delivered delays",
                ratio * 100.0
            ),
        );
    }
    if let Some(share) = left_out(measured) {
        tell(
            share > LEFT_OUT,
            format!(
                "{:.0} % of the delays were left out, because a thread was already delayed for as much of \
                 its time as allowed (--max-slowdown); the analysis uses the delivered delays",
                share * 100.0
            ),
        );
    }
    if let Some(drift) = drift {
        let text = format!(
            "without delays, the time per unit changed by {:+.0} % in the second half of the experiment; \
             each chip is compared with those around it",
            drift * 100.0
        );
        tell(drift.abs() > DRIFT && (1.0 / ANOTHER..ANOTHER).contains(&(1.0 + drift)), text);
    }
    let recovery = recovery(measured);
    if let Some(recovery) = recovery {
        let text = format!(
            "after the experiment, the time per unit differs by {:+.0} % from that before",
            recovery * 100.0
        );
        let stretch: f64 = measured.of_phase(PhaseKind::Recover).map(Slice::span).sum();
        tell(recovery.abs() > DRIFT && is_slower(measured, recovery.abs(), stretch), text);
    }
    let came_back = measured.load_changes.iter().filter(|change| change.end_ns.is_some());
    for change in came_back.take(LOAD_CHANGES) {
        tell(true, format!("{}: slices of that time do not count", load::describe(measured, change)));
    }
    if let Some(text) = measured.load.as_ref().and_then(load::started_again) {
        tell(true, text);
    }
    if let Some(around) = &measured.around {
        around_problems(around).into_iter().for_each(|text| tell(true, text));
    }
    if let Some(slowdown) = measured.census.slowdown {
        let text = format!(
            "timing calls in the census slowed units down by {:.1} %, so that own times are too long by as \
             much at most",
            slowdown * 100.0
        );
        let Census { start_ns, end_ns, .. } = measured.census;
        let stretch = end_ns.0.saturating_sub(start_ns.0) as f64;
        tell(slowdown > COSTS && is_slower(measured, slowdown, stretch), text);
    }
    let is_timed = |kind| measured.candidates.iter().any(|of| of.kind == kind && of.own_ns.is_some());
    tell(
        is_timed(TargetKind::Python) && is_timed(TargetKind::Native),
        "own times of Python functions include those of the native functions that they call".to_owned(),
    );
    if let Some(sampling) = &measured.sampling {
        if let Some(slowdown) = sampling.slowdown {
            let text = format!("sampling slowed units down by {:.1} %", slowdown * 100.0);
            let stretch = sampling.ticks as f64 / sampling.rate.max(1.0) * 1e9;
            tell(slowdown > COSTS && is_slower(measured, slowdown, stretch), text);
        }
        if let Some(unit) = &sampling.unit {
            tell(true, unit.clone());
        }
        sampling.remarks.iter().for_each(|remark| tell(true, remark.clone()));
    }
    if let Some(text) = more_failed(measured).filter(|_| measured.invalid.is_none()) {
        tell(true, text);
    }
    if let Some(why) = &measured.aborted {
        tell(true, format!("the experiment ended early: {why}"));
    }
    Validity {
        holds: !problems.iter().any(|problem| problem.fatal),
        problems,
        delivered_over_asked,
        slices: measured.slices.iter().filter(|slice| slice.counts()).count(),
        dropped,
        drift,
        recovery,
    }
}

/// Changes around the experiment that can mislead it.
fn around_problems(around: &Around) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(busy) = around.processors_busy.filter(|busy| *busy > BUSY) {
        let others =
            around.others.map(|others| format!(", {:.0} % of it with other programs", others / busy * 100.0));
        let wait = around.processor_wait.map(|wait| {
            format!("; its threads waited for one for {:.0} % of the time that they wanted one", wait * 100.0)
        });
        problems.push(format!(
            "the machine's processors were busy for {:.0} % of the time{}: whatever takes a processor \
             slows the service down too{}",
            busy * 100.0,
            others.unwrap_or_default(),
            wait.unwrap_or_default()
        ));
    }
    let Around { processes_came, processes_went, threads_came, threads_went, .. } = *around;
    if processes_came > 0 || processes_went > 0 {
        problems.push(format!(
            "processes of the service changed: {processes_came} came and {processes_went} went, from the \
             beginning to the end"
        ));
    }
    if threads_came > 0 || threads_went > 0 {
        problems.push(format!(
            "threads of the service changed: {threads_came} came and {threads_went} went, from the beginning \
             to the end"
        ));
    }
    if around.suspended_ns > CLOCK_STEP {
        problems.push(format!(
            "the machine was suspended for {} meanwhile",
            Nanos(around.suspended_ns.unsigned_abs())
        ));
    }
    if around.clock_step_ns.unsigned_abs() > CLOCK_STEP.unsigned_abs() {
        problems.push(format!(
            "the time of day was set by {} meanwhile; the experiment uses another clock, but the service or \
             its metrics may not",
            Nanos(around.clock_step_ns.unsigned_abs())
        ));
    }
    problems
}

fn dropped(measured: &Measured) -> Vec<Dropped> {
    let mut dropped: Vec<Dropped> = Vec::new();
    for reason in measured.slices.iter().filter_map(|slice| slice.marks.first().copied()) {
        match dropped.iter_mut().find(|of| of.reason == reason) {
            Some(of) => of.slices += 1,
            None => dropped.push(Dropped { reason, slices: 1 }),
        }
    }
    dropped
}

fn delivered_over_asked(measured: &Measured) -> Option<f64> {
    let delivered =
        || measured.slices.iter().filter(|slice| slice.counts()).flat_map(|slice| &slice.delivered);
    let asked: f64 = delivered().map(|of| of.all_asked().0 as f64).sum();
    let arrived: f64 = delivered().map(|of| of.delivered_ns.0 as f64).sum();
    (asked > 0.0).then(|| arrived / asked)
}

/// The share of all delays that the bound on threads left out; `None` if none were requested.
fn left_out(measured: &Measured) -> Option<f64> {
    let delivered = || measured.slices.iter().flat_map(|slice| &slice.delivered);
    let asked: f64 = delivered().map(|of| of.all_asked().0 as f64).sum();
    let bounded: f64 = delivered().map(|of| of.bounded_ns.0 as f64).sum();
    (asked > 0.0).then(|| bounded / asked)
}

/// By what share a unit took longer in the second half of the chips than in the first, minus what doses
/// added.
fn drift(design: &Design) -> Option<f64> {
    let times = design.times_without_doses();
    if times.len() < MIN_CHIPS {
        return None;
    }
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let (first, second) = times.split_at(times.len() / 2);
    Some(mean(second) / mean(first) - 1.0)
}

fn recovery(measured: &Measured) -> Option<f64> {
    Some(
        controls(measured.of_phase(PhaseKind::Recover), measured.by)?
            / controls(measured.of_phase(PhaseKind::Census), measured.by)?
            - 1.0,
    )
}

/// The mean time per unit of slices without delays; `None` without any.
pub(super) fn controls<'a>(slices: impl Iterator<Item = &'a Slice>, by: By) -> Option<f64> {
    let times: Vec<f64> = slices
        .filter(|slice| slice.treatment == Treatment::Control)
        // Without a unit there is no latency.
        .filter(|slice| by == By::Throughput || slice.units > 0.0)
        .map(|slice| slice.time_per_unit(by))
        .collect();
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}
