//! Chooses functions where none are named, and a unit of work where none is.

use std::time::Duration;

use super::{
    error::SweepError,
    observer::{Observer, Step},
    sampled::{BRIEF, COUNTED, Found, lines, units_done},
    session::{Context, Notices, SweepSession},
    unit::Units,
};
use crate::{
    experiment::live::{Counted, counted, wait_until},
    sys::clock::now,
    targets::source::TargetSource,
    units::Nanos,
};

/// Native functions are counted so often at most, before all of them may be.
const COUNTS: usize = 4;

/// What was found.
pub(super) struct Choice {
    /// The unit of work.
    pub(super) units: Units,
    /// Functions.
    pub(super) targets: TargetSource,
    /// By what they were chosen.
    pub(super) found: Found,
    /// The session in which calls were counted to choose, if any were.
    pub(super) session: Option<SweepSession>,
}

/// Samples the processes, and chooses what takes time.
pub(super) fn find(
    context: &Context<'_>,
    mut units: Units,
    observer: &mut dyn Observer,
) -> Result<Choice, SweepError> {
    let wants_unit = units.is_open();
    let mut session = None;
    let mut found = if wants_unit || !units.metrics.unit.is_early() {
        Found::of(context, &mut || None, observer)?
    } else {
        units.open_unit()?;
        // Calls are seen in a session alone.
        observer.step(Step::Attach);
        if let Some(own) = units.own() {
            session = Some(context.session(None, &own, false, Notices::All, observer)?);
        }
        let handle = session.as_ref().map(|session| &session.handle);
        Found::of(context, &mut units_done(&mut *units.metrics.unit, handle), observer)?
    };
    observer.step(Step::CountCalls);
    if wants_unit && let Some((target, counted_in)) = chosen_unit(context, &mut found, observer)? {
        units = units.of_calls(target);
        // First without the others: they may select the unit's function too.
        if let Some(own) = units.own() {
            session = Some(context.session(Some(counted_in), &own, false, Notices::All, observer)?);
        }
    }
    if let Some(text) = found.unit() {
        observer.line(text);
    }
    if wants_unit && found.unit().is_none() {
        // Returns the error that there is none.
        units.open()?;
    }
    // As often as functions are left out: the service is faster without their traps, and calls the others
    // more often.
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
    Ok(Choice { units, targets: found.targets(), found, session })
}

/// The calls of the outermost function that is called again and again, if there is one, and the session in
/// which they were counted.
fn chosen_unit(
    context: &Context<'_>,
    found: &mut Found,
    observer: &mut dyn Observer,
) -> Result<Option<(String, SweepSession)>, SweepError> {
    let outermost = found.outermost();
    let lines: Vec<String> = outermost.iter().flat_map(lines).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let targets = TargetSource::lines("functions that may be a unit of work", &lines);
    let session = context.session(None, &targets, false, Notices::OfProcesses, observer)?;
    let counted = count(context, &session, COUNTED)?;
    Ok(found.choose_unit(&outermost, &counted).map(|target| (target, session)))
}

/// Counts calls for a while.
fn count(context: &Context<'_>, session: &SweepSession, time: Duration) -> Result<Counted, SweepError> {
    let handle = &session.handle;
    let system = SweepError::system("cannot read the counters");
    let earlier = handle.snapshot().map_err(&system)?;
    let ended = |error| SweepError::before_slices(error, "the functions that were sampled");
    wait_until(handle, context.quit, now() + Nanos::from(time)).map_err(ended)?;
    let later = handle.snapshot().map_err(&system)?;
    let targets = handle.controls().targets();
    Ok(counted(&earlier, &later, 0.0, &targets, None, &[], handle.report().as_ref()))
}
