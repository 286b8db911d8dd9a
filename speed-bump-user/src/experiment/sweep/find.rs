//! Chooses functions where none are named, and a unit of work where none is.

use std::time::Duration;

use super::{
    error::SweepError,
    observer::{Observer, Step},
    sampled::{BRIEF, COUNTED, Found, lines, units_done},
    session::{Context, Notices},
    unit::Units,
};
use crate::{
    experiment::live::{Counted, counted, wait_until},
    session::handle::Handle,
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
}

/// Samples the processes, and chooses what takes time.
pub(super) fn find(
    context: &Context<'_>,
    mut units: Units,
    observer: &mut dyn Observer,
) -> Result<Choice, SweepError> {
    let wants_unit = units.is_open();
    let mut found = if wants_unit || !units.metrics.unit.is_early() {
        Found::of(context, &mut || None, observer)?
    } else {
        units.open_unit()?;
        // Calls are seen in a session alone.
        observer.step(Step::Attach);
        let session = units.own().map(|own| begin(context, own, observer)).transpose()?;
        Found::of(context, &mut units_done(&mut *units.metrics.unit, session.as_ref()), observer)?
    };
    observer.step(Step::CountCalls);
    let chosen = if wants_unit { chosen_unit(context, &mut found, observer)? } else { None };
    if let Some(target) = chosen {
        units = units.of_calls(target);
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
        let Some(native) = found.native() else { break };
        let (_session, counted) = count(context, native, BRIEF, observer)?;
        let is_changed = found.leave_out(&counted, context.options.max_slowdown);
        if found.is_empty() {
            return Err(SweepError::TooOften);
        }
        if !is_changed {
            break;
        }
    }
    Ok(Choice { units, targets: found.targets(), found })
}

/// The calls of the outermost function that is called again and again, if there is one.
fn chosen_unit(
    context: &Context<'_>,
    found: &mut Found,
    observer: &mut dyn Observer,
) -> Result<Option<String>, SweepError> {
    let outermost = found.outermost();
    let lines: Vec<String> = outermost.iter().flat_map(lines).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let targets = TargetSource::lines("functions that may be a unit of work", &lines);
    let (_session, counted) = count(context, targets, COUNTED, observer)?;
    Ok(found.choose_unit(&outermost, &counted))
}

/// A session that counts calls, and nothing else.
fn begin(
    context: &Context<'_>,
    targets: TargetSource,
    observer: &mut dyn Observer,
) -> Result<Handle, SweepError> {
    context.start(&context.options.request(targets), Notices::Known, observer)
}

/// Counts calls for a while.
fn count(
    context: &Context<'_>,
    targets: TargetSource,
    time: Duration,
    observer: &mut dyn Observer,
) -> Result<(Handle, Counted), SweepError> {
    let handle = begin(context, targets, observer)?;
    let system = SweepError::system("cannot read the counters");
    let earlier = handle.snapshot().map_err(&system)?;
    let ended = |error| SweepError::before_slices(error, "the functions that were sampled");
    wait_until(&handle, context.quit, now() + Nanos::from(time)).map_err(ended)?;

    let later = handle.snapshot().map_err(&system)?;
    let targets = handle.controls().targets();
    let counted = counted(&earlier, &later, 0.0, &targets, None, 0, handle.report().as_ref());
    Ok((handle, counted))
}
