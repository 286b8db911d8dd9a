//! Chooses functions and unit of work when none are named.

use std::time::Duration;

use super::{
    chosen_unit::counting_time,
    error::SweepError,
    observer::{Observer, Step},
    options::Options,
    sampled::{BRIEF, Found, is_of, lines, units_done},
    session::{Context, Notices, SweepSession},
    steps,
    unit::Units,
};
use crate::{
    experiment::live::{Counted, ForMetrics, counted, wait_until},
    python::entry_source::{EntryChoice, EntrySource},
    sys::clock::now,
    targets::source::TargetSource,
    units::Nanos,
};

/// How many times we count native functions at most. Then we accept those that are left.
const COUNTS: usize = 4;
/// How long to count calls of functions that may be loops which never return.
const OF_LOOPS: Duration = Duration::from_secs(1);

/// The choice.
pub(super) struct Choice {
    /// The unit of work.
    pub(super) units: Units,
    /// Functions.
    pub(super) targets: TargetSource,
    /// The samples that chose them.
    pub(super) found: Found,
    /// The session that counted calls for the choice, if there was one.
    pub(super) session: Option<SweepSession>,
}

/// Samples the processes, and chooses the functions that take time.
pub(super) fn find(
    context: &Context<'_>,
    mut units: Units,
    observer: &mut dyn Observer,
) -> Result<Choice, SweepError> {
    let wants_unit = units.is_open();
    let mut session = None;
    let mut found = if wants_unit || !units.metrics.unit.is_early() {
        Found::sample(context, &mut || None, observer)?
    } else {
        units.open_unit()?;
        // Counting calls needs a session.
        observer.step(Step::Attach);
        if let Some(own) = units.own() {
            session = Some(context.session(None, &own, false, Notices::All, observer)?);
        }
        let handle = session.as_ref().map(|session| &session.handle);
        context.wait_for_units(&mut *units.metrics.unit, &units.source, handle, observer)?;
        Found::sample(context, &mut units_done(&mut *units.metrics.unit, handle), observer)?
    };
    observer.step(Step::CountCalls);
    let mut counted_outermost = None;
    if wants_unit && let Some(outermost) = count_outermost(context, &mut found, observer)? {
        counted_outermost = Some(outermost.counted);
        if let Some(target) = outermost.unit {
            units = units.with_calls(target);
            // First without the other targets, which may select the unit's function too.
            if let Some(own) = units.own() {
                session =
                    Some(context.session(Some(outermost.session), &own, false, Notices::All, observer)?);
            }
        }
    }
    if let Some(text) = found.unit() {
        observer.line(text);
    }
    if wants_unit && found.unit().is_none() {
        // Returns the error that there is no unit.
        units.open()?;
    }
    let always_there = found.always_there();
    if !always_there.is_empty() {
        let has_all = |counted: &Counted| {
            always_there.iter().all(|function| counted.candidates.iter().any(|of| is_of(of, function)))
        };
        let counted = match counted_outermost.filter(has_all) {
            Some(counted) => counted,
            None => {
                let lines: Vec<String> = always_there.iter().flat_map(lines).collect();
                let targets = units.before(TargetSource::lines("functions that may be loops", &lines));
                let counting = context.session(session.take(), &targets, false, Notices::All, observer)?;
                let counted = count(context, &counting, OF_LOOPS)?;
                session = Some(counting);
                counted
            }
        };
        found.choose_without_loops(&always_there, &counted);
    }
    if found.is_empty() {
        return Err(found.nothing_sampled());
    }
    // We repeat this while functions are left out: without the traps of these, the service is faster, and
    // calls the others more often.
    for _ in 0..COUNTS {
        if !found.has_native() {
            break;
        }
        let targets = units.before(found.targets());
        let counting = context.session(session.take(), &targets, false, Notices::All, observer)?;
        let counted = count(context, &counting, BRIEF)?;
        session = Some(counting);
        let is_changed = found.leave_out(&counted, context.options.max_slowdown);
        if found.is_empty() {
            return Err(SweepError::TooOften);
        }
        if !is_changed {
            break;
        }
    }
    let session = ask_by_caller(context, &units, &mut found, session, observer)?;
    let session = steps::count_steps(context, &mut units, &found, session, observer)?;
    Ok(Choice { units, targets: found.targets(), found, session })
}

/// If the helper sees who calls, functions with several callers are asked about by these callers.
fn ask_by_caller(
    context: &Context<'_>,
    units: &Units,
    found: &mut Found,
    mut session: Option<SweepSession>,
    observer: &mut dyn Observer,
) -> Result<Option<SweepSession>, SweepError> {
    let Options { entry, inject, .. } = context.options;
    let may_see = *inject && matches!(entry, EntryChoice::Auto | EntryChoice::Only(EntrySource::Helper));
    if !may_see || !found.ask_by_caller() {
        return Ok(session);
    }
    let targets = units.before(found.targets());
    let counted = context
        .session(session.take(), &targets, false, Notices::OfProcesses, observer)
        .and_then(|counting| Ok((count(context, &counting, BRIEF)?, counting)));
    match counted {
        Ok((counted, counting)) => {
            let is_covered = found.keep_by_caller(Some(&counted));
            session = Some(counting).filter(|_| is_covered);
        }
        Err(SweepError::Stopped) => return Err(SweepError::Stopped),
        Err(error) => {
            // This happens, for example, if the calls of a process are seen without the helper.
            tracing::info!("no function is asked about by its callers: {error}");
            found.keep_by_caller(None);
        }
    }
    Ok(session)
}

/// The calls of the outermost functions.
struct Outermost {
    counted: Counted,
    /// The target for the outermost function that is called repeatedly, if there is one.
    unit: Option<String>,
    /// The session that counted.
    session: SweepSession,
}

/// Counts calls of the outermost functions, and chooses the unit of work; `None` if no target can name any.
fn count_outermost(
    context: &Context<'_>,
    found: &mut Found,
    observer: &mut dyn Observer,
) -> Result<Option<Outermost>, SweepError> {
    let outermost = found.outermost();
    let lines: Vec<String> = outermost.iter().flat_map(lines).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let targets = TargetSource::lines("functions that may be a unit of work", &lines);
    let session = context.session(None, &targets, false, Notices::OfProcesses, observer)?;
    let counted = count(context, &session, counting_time(context.options.time))?;
    let unit = found.choose_unit(&outermost, &counted, context.options.time);
    Ok(Some(Outermost { counted, unit, session }))
}

/// Counts calls for some time.
fn count(context: &Context<'_>, session: &SweepSession, time: Duration) -> Result<Counted, SweepError> {
    let handle = &session.handle;
    let system = SweepError::system("cannot read the counters");
    let earlier = handle.snapshot().map_err(&system)?;
    let ended = |error| SweepError::before_slices(error, "the functions that were sampled");
    wait_until(handle, context.quit, now() + Nanos::from(time)).map_err(ended)?;
    let later = handle.snapshot().map_err(&system)?;
    let targets = handle.controls().targets();
    Ok(counted(&earlier, &later, 0.0, &targets, ForMetrics::default(), handle.report().as_ref()))
}
