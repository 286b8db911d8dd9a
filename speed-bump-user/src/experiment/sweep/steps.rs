//! Finds the steps of long units, where sampling chose the functions: counts calls of functions that take
//! most of a unit.

use super::{
    begin::unit_name,
    choose::{Code, is_function},
    error::SweepError,
    inner_unit::{self, Longer, Polls, countable, is, is_called_inside},
    observer::Observer,
    sampled::{Found, lines},
    session::{Context, Notices, SweepSession},
    unit::{StepsOf, Units},
};
use crate::{
    experiment::{live::wait_until, record::By},
    probe::plan::SelectedFunction,
    sampling::profile::{FunctionSeen, Profile},
    sys::clock::now,
    targets::exact,
    units::Nanos,
};

/// A function may be a step if it takes this share of the time, with what it calls.
const OF_TIME: f64 = 0.3;
/// The most functions that are counted only because they may be steps.
const MAX_STEPS: usize = 8;
/// Counting takes at least this long, and at most this part of the whole time.
const MIN_TIME: Nanos = Nanos(1_000_000_000);
const MAX_PART: f64 = 0.16;
/// How often to read the counts.
const POLL: Nanos = Nanos(20_000_000);

/// Counts steps of units in place of units, if these are long and have any.
pub(super) fn count_steps(
    context: &Context<'_>,
    units: &mut Units,
    found: &Found,
    session: Option<SweepSession>,
    observer: &mut dyn Observer,
) -> Result<Option<SweepSession>, SweepError> {
    let options = context.options;
    if !inner_unit::may_count(options, &units.metrics) || !found.has_long_units(options.time) {
        return Ok(session);
    }
    let unit_functions = session.as_ref().map(|session| session.functions_of(units.targets()));
    let may_be_steps = found.may_be_steps(&unit_functions.unwrap_or_default());
    let targets = units.before_steps(&may_be_steps, found.targets());
    let session = match context.session(session, &targets, false, Notices::OfProcesses, observer) {
        Ok(session) => session,
        Err(SweepError::Stopped) => return Err(SweepError::Stopped),
        Err(error) => {
            tracing::info!("steps of units are not counted: {error}");
            return Ok(None);
        }
    };
    if let Some((of, chosen)) = poll(context, units, found, &session)? {
        observer.line(&chosen.line());
        units.count_steps(of, chosen.inner, chosen.chip);
    }
    Ok(Some(session))
}

/// Reads the counts again and again. `None`: units have no steps.
fn poll(
    context: &Context<'_>,
    units: &mut Units,
    found: &Found,
    session: &SweepSession,
) -> Result<Option<(StepsOf, inner_unit::Chosen)>, SweepError> {
    let (options, handle) = (context.options, &session.handle);
    let system = SweepError::system("cannot read the counters");
    units.open_unit()?;
    let of_units = session.places.get(..units.targets()).unwrap_or_default();
    units.metrics.unit.begin(handle.controls(), of_units).map_err(&system)?;
    let earlier = handle.snapshot().map_err(&system)?;
    let before = units.metrics.unit.read(&earlier).map_err(&system)?;
    let latest = now() + Nanos::from(options.time.mul_f64(MAX_PART)).max(MIN_TIME);
    let (mut polls, mut next) = (Polls::default(), now());
    while next < earlier.at + MIN_TIME || (polls.need_time() && next < latest) {
        next = next + POLL;
        let ended = |error| SweepError::before_slices(error, &units.source);
        wait_until(handle, context.quit, next).map_err(ended)?;
        polls.read(handle, &mut units.metrics);
    }
    let later = handle.snapshot().map_err(&system)?;
    let after = units.metrics.unit.read(&later).map_err(&system)?;
    let span = Nanos(later.at.0.saturating_sub(earlier.at.0));
    let idle = inner_unit::idle(&before, &after);
    if !inner_unit::may_be(By::Throughput, idle, span, options.closed_loop) {
        return Ok(None);
    }
    let under_way = inner_unit::under_way(&before, &after, span);
    let targets = handle.controls().targets();
    let countable = countable(&later.since(&earlier), &targets, units.metrics.unit.target());
    let is_unit = |of: &&SelectedFunction| units.metrics.unit.target() == Some(of.target);
    let unit = later.known.iter().map(|(_, of)| of).find(is_unit);
    let name = unit_name(units, unit);
    let longer = Longer { name: &name, unit, under_way, time: options.time };
    let chosen = polls.choose(&countable, found.profile(), longer);
    Ok(chosen.and_then(|chosen| {
        let SelectedFunction { target, name, file, .. } = &chosen.function;
        let kind = targets.get(*target)?.kind;
        let line = exact::selecting_line(kind, file, name)?;
        Some((StepsOf::Target(line), chosen))
    }))
}

/// Lines for functions that take most of a unit, and are not among the `chosen` ones, which are counted
/// anyway. `units`: functions whose calls are units.
pub(super) fn may_be_steps(
    profile: &Profile,
    code: &Code,
    units: &[SelectedFunction],
    chosen: &[FunctionSeen],
) -> Vec<String> {
    let least = profile.span.0 as f64 * OF_TIME;
    let is_unit = |seen: &FunctionSeen| units.iter().any(|unit| is(unit, seen));
    let may_be = |of: &&FunctionSeen| {
        is_function(of)
            && of.anywhere_running.0 as f64 >= least
            && !chosen.contains(of)
            && !is_unit(of)
            && (units.is_empty() || is_called_inside(|seen| seen == *of, is_unit, profile))
    };
    let mut functions: Vec<&FunctionSeen> = profile.functions.iter().filter(may_be).collect();
    functions.sort_by_key(|of| (code.origin(of), of.depth));
    functions.into_iter().take(MAX_STEPS).flat_map(lines).collect()
}
