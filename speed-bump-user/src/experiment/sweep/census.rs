//! The census counts and times calls without delays, to find the functions that are worth an experiment.

use std::{io, time::Duration};

use super::{
    error::SweepError,
    inner_unit,
    observer::{Observer, Step},
    session::{Context, Notices, SweepSession},
    sharing::Seen,
    unit::Units,
};
use crate::{
    experiment::{
        live::{Counted, ForMetrics, counted, wait_until},
        metric::{Metrics, Reading},
        record::By,
        subject::SubjectError,
    },
    sampling,
    session::{handle::Handle, quit::Quit, snapshot::Snapshot},
    sys::clock::now,
    targets::source::TargetSource,
    units::Nanos,
};

/// The census takes this part of the whole time.
const CENSUS: f64 = 0.06;
/// The census may always take this long.
const MIN_CENSUS: Duration = Duration::from_secs(2);
/// If sampling chose the functions, the census ends when enough has happened, but not before this time.
const EARLIEST_END: Nanos = Nanos(1_000_000_000);
/// How often to check whether enough has happened.
const CHECK_EVERY: Nanos = Nanos(200_000_000);
/// Enough calls of each function, and enough units.
const ENOUGH: u64 = 8;
/// The census takes at most this part if no unit was observed from its beginning to its end.
const LONGEST_CENSUS: f64 = 0.16;
/// The census takes at most this part if no unit is done.
const LONGEST_WITHOUT_UNIT: f64 = 0.25;
/// How often to poll whether a run of a benchmark has ended.
const RUN_ENDS: Nanos = Nanos(10_000_000);
/// How often to read which threads do units.
const CALLERS: Nanos = Nanos(20_000_000);

/// What a census measures.
pub(super) struct Asked {
    /// An earlier session to continue, if any.
    pub(super) session: Option<SweepSession>,
    /// The functions, after those of the units.
    pub(super) targets: TargetSource,
    /// Whether calls are timed.
    pub(super) times: bool,
    /// Whether stacks are sampled as well.
    pub(super) samples: bool,
    /// When the whole time is over.
    pub(super) ends: Nanos,
}

/// Counts and times calls for a while. Returns the counts, the observed threads, and the session, which
/// continues.
pub(super) fn count(
    context: &Context<'_>,
    asked: Asked,
    units: &mut Units,
    observer: &mut dyn Observer,
) -> Result<(Counted, Seen, SweepSession), SweepError> {
    let (options, quit) = (context.options, context.quit);
    let Asked { session, targets, times, samples, ends } = asked;
    observer.step(Step::Attach);
    let session = context.session(session, &targets, times, Notices::All, observer)?;
    let handle = &session.handle;
    let time = census_time(options.time);
    let timed = if times { " and timing" } else { "" };
    let system = SweepError::system("cannot read the counters");
    units.open()?;
    let of_targets = session.places.get(..units.counted_targets()).unwrap_or_default();
    let (metrics, source) = (&mut units.metrics, &units.source);
    metrics.begin(handle.controls(), of_targets).map_err(&system)?;
    context.wait_for_units(&mut *metrics.unit, source, Some(handle), observer)?;
    let at_most = if samples { "" } else { "at most " };
    observer.line(&format!("census: counting{timed} calls for {at_most}{}", Nanos::from(time)));
    observer.step(Step::Census);
    let (target, runs) = (metrics.unit.target(), metrics.unit.is_of_runs());
    let ended = |error| SweepError::before_slices(error, source);
    if runs {
        // The first run fills caches.
        run_once(handle, quit, metrics, ends).map_err(ended)?;
    }
    let (earlier, before) = look(handle, metrics).map_err(&system)?;
    let mut seen = Seen::default();
    if runs {
        run_once(handle, quit, metrics, ends).map_err(ended)?;
    } else {
        let end = now() + Nanos::from(time);
        if samples {
            let mut next_poll = now();
            let go_on = || {
                seen.add_callers(handle, target);
                if now() >= next_poll {
                    seen.polls.read(handle, metrics);
                    next_poll = now() + CALLERS;
                }
                !quit.is_asked()
            };
            // Without the profile, the report has less about threads.
            let profile = sampling::sample(context.processes, options.children, time, go_on);
            seen.profile = profile.ok();
        }
        let mut check = now() + EARLIEST_END;
        loop {
            seen.add_callers(handle, target);
            let next = end.min(now() + CALLERS);
            wait_until(handle, quit, next).map_err(ended)?;
            if next == end {
                break;
            }
            if !samples && next >= check {
                let (later, after) = look(handle, metrics).map_err(&system)?;
                if after.units - before.units >= ENOUGH as f64 && all_called(&earlier, &later, handle) {
                    break;
                }
                check = next + CHECK_EVERY;
            }
        }
        seen.take_callers(handle);
    }
    let (mut later, mut after) = look(handle, metrics).map_err(&system)?;
    // A unit may take longer.
    let until = |part: f64| earlier.at + Nanos::from(options.time.mul_f64(part).max(time));
    loop {
        let is_without_unit = after.units == before.units;
        let latest = if is_without_unit {
            until(LONGEST_WITHOUT_UNIT)
        } else if seen.polls.need_time() {
            until(LONGEST_CENSUS)
        } else {
            break;
        };
        if runs || now() >= latest {
            break;
        }
        wait_until(handle, quit, latest.min(now() + CALLERS)).map_err(ended)?;
        (later, after) = look(handle, metrics).map_err(&system)?;
        if samples {
            seen.polls.add(&later, &after);
        }
    }
    let report = handle.report();
    let warnings = report.iter().flat_map(|report| &report.warnings);
    warnings.for_each(|text| observer.warning(text));
    seen.missed_calls = report.iter().flat_map(|report| report.missed_calls.clone()).collect();
    let targets = handle.controls().targets();
    let units = after.units - before.units;
    if units < 0.0 {
        let (before, after) = (before.units, after.units);
        return Err(SweepError::JumpedBack { unit: source.clone(), before, after });
    }
    let span = Nanos(later.at.0.saturating_sub(earlier.at.0));
    let idle = inner_unit::idle(&before, &after);
    let by = metrics.unit.by();
    if samples
        && inner_unit::may_count(options, metrics)
        && inner_unit::may_be(by, idle, span, options.closed_loop)
    {
        seen.steps = inner_unit::countable(&later.since(&earlier), &targets, metrics.unit.target());
    }
    seen.under_way = inner_unit::under_way(&before, &after, span);
    // The function of the unit takes time as others do, and is tried as they are. But if the user named the
    // functions to try, it is not among them.
    let tries_unit = !samples && metrics.unit.by() == By::Throughput;
    let tried = [metrics.unit.target(), metrics.unit.longer_target()].map(|of| of.filter(|_| tries_unit));
    let metrics = ForMetrics { targets: of_targets, unit: target, tried };
    let counted = counted(&earlier, &later, units, &targets, metrics, report.as_ref());
    Ok((counted, seen, session))
}

/// Whether each function was called often enough since.
fn all_called(earlier: &Snapshot, later: &Snapshot, handle: &Handle) -> bool {
    let targets = handle.controls().targets();
    let counted = counted(earlier, later, 0.0, &targets, ForMetrics::default(), None);
    counted.candidates.iter().all(|of| of.calls >= ENOUGH)
}

/// The counts of calls and units so far.
fn look(handle: &Handle, metrics: &mut Metrics) -> io::Result<(Snapshot, Reading)> {
    let snapshot = handle.snapshot()?;
    let reading = metrics.unit.read(&snapshot)?;
    Ok((snapshot, reading))
}

/// Runs the benchmark once, and ends the run when the whole time is over.
fn run_once(handle: &Handle, quit: &Quit, metrics: &mut Metrics, ends: Nanos) -> Result<(), SubjectError> {
    metrics.unit.begin_run().map_err(SubjectError::Metric)?;
    while metrics.unit.finished_run().map_err(SubjectError::Metric)?.is_none() {
        wait_until(handle, quit, now() + RUN_ENDS)?;
        if now() >= ends {
            return Err(SubjectError::Metric(io::Error::other(
                "a run had not ended when the time was up that --for gives for all of them: does it wait for \
                 something?",
            )));
        }
    }
    Ok(())
}

fn census_time(time: Duration) -> Duration {
    time.mul_f64(CENSUS).max(MIN_CENSUS)
}
