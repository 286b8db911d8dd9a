//! What is looked at where no functions are named, and what a unit of work is where that is not either.

use std::time::Duration;

use anyhow::anyhow;

use super::{
    super::{
        args::SweepArgs,
        exit::{Failure, SYSTEM, USAGE},
    },
    Notices, before_slices,
    preparing::Preparing,
    request,
    sampled::{BRIEF, COUNTED, Found, lines, units},
    start,
    unit::Units,
};
use crate::{
    experiment::live::{Counted, counted, wait_until},
    session::{handle::Handle, quit::Quit},
    sys::clock::now,
    targets::source::TargetSource,
    units::Nanos,
};

/// Native functions are counted so often at most, before all of them may be.
const COUNTS: usize = 4;

/// What was found.
pub(super) struct Choice {
    /// The unit of work.
    pub(super) unit: Units,
    /// Functions.
    pub(super) targets: TargetSource,
    /// By what they were chosen.
    pub(super) found: Found,
}

/// Samples the processes, and chooses what takes time.
pub(super) fn find(
    arguments: &SweepArgs,
    unit: Units,
    quit: &Quit,
    preparing: &Preparing,
) -> Result<Choice, Failure> {
    let wants_unit = unit.is_open();
    let metric = if wants_unit { None } else { unit.early_metric()? };
    let mut found = match metric {
        None => Found::of(arguments, quit, preparing, &mut || None)?,
        Some(mut metric) => {
            // Calls are seen in a session alone.
            preparing.step("attach");
            let session = unit.own().map(|own| begin(arguments, own, quit)).transpose()?;
            Found::of(arguments, quit, preparing, &mut units(&mut *metric, session.as_ref()))?
        }
    };
    preparing.step("count calls");
    let chosen = if wants_unit { chosen_unit(arguments, &mut found, quit)? } else { None };
    let unit = match chosen {
        Some(target) => unit.of_calls(target),
        None => unit,
    };
    if let Some(text) = found.unit() {
        preparing.line(text);
    }
    if wants_unit && found.unit().is_none() {
        // It has the words for that there is none.
        unit.metrics()?;
    }
    // As often as functions are left out: the service is faster without their traps, and calls the others
    // more often.
    for _ in 0..COUNTS {
        let Some(native) = found.native() else { break };
        let (_session, counted) = count(arguments, native, quit, BRIEF)?;
        let is_changed = found.leave_out(&counted, arguments.max_slowdown);
        if found.is_empty() {
            let text = "the functions that take time are called so often that even to count their calls \
                        would slow the service down too much: name some with --target PATTERN";
            return Err(Failure::new(USAGE, anyhow!(text)));
        }
        if !is_changed {
            break;
        }
    }
    Ok(Choice { unit, targets: found.targets(), found })
}

/// The calls of the outermost function that is called again and again, if there is one.
fn chosen_unit(arguments: &SweepArgs, found: &mut Found, quit: &Quit) -> Result<Option<String>, Failure> {
    let outermost = found.outermost();
    let lines: Vec<String> = outermost.iter().flat_map(lines).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let targets = TargetSource::lines("functions that may be a unit of work", &lines);
    let (_session, counted) = count(arguments, targets, quit, COUNTED)?;
    Ok(found.choose_unit(&outermost, &counted))
}

/// A session that counts calls, and nothing else.
fn begin(arguments: &SweepArgs, targets: TargetSource, quit: &Quit) -> Result<Handle, Failure> {
    start(arguments, &request(arguments, targets), quit, Notices::Known)
}

/// Counts calls for a while.
fn count(
    arguments: &SweepArgs,
    targets: TargetSource,
    quit: &Quit,
    time: Duration,
) -> Result<(Handle, Counted), Failure> {
    let handle = begin(arguments, targets, quit)?;
    let system = |error: std::io::Error| Failure::new(SYSTEM, error);
    let earlier = handle.snapshot().map_err(system)?;
    let ended = |error| before_slices(error, "the functions that were sampled");
    wait_until(&handle, quit, now() + Nanos::from(time)).map_err(ended)?;

    let later = handle.snapshot().map_err(system)?;
    let targets = handle.controls().targets();
    let counted = counted(&earlier, &later, 0.0, &targets, None, 0, handle.report().as_ref());
    Ok((handle, counted))
}
