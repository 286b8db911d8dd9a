//! Builds a [`Request`] from flags and environment.

use std::num::NonZeroU64;

use anyhow::anyhow;

use super::{
    args::{SelectArgs, SessionArgs, TargetArgs},
    environment::Environment,
    exit::{Failure, USAGE},
};
use crate::{policy::Dose, prepare::Request, targets::source::TargetSource, units::Nanos};

/// The delay if neither flag nor environment sets one; upstream's default.
const DEFAULT_DELAY: Nanos = Nanos(1_000);

/// The parts of a request that `list` and sessions have in common.
pub(super) fn selection(select: &SelectArgs, environment: &Environment) -> Result<Request, Failure> {
    Ok(Request {
        allow_empty: select.allow_empty,
        default: dose(select, None, environment),
        engine: select.engine.engine,
        entry: select.engine.entry,
        inject: !select.engine.no_inject,
        inject_timeout: select.engine.inject_timeout,
        accept_upstream_module: select.engine.accept_upstream_module,
        times: select.times,
        ..Request::new(targets(&select.which, environment)?)
    })
}

/// The request of a session.
pub(super) fn session(
    select: &SelectArgs,
    flags: &SessionArgs,
    environment: &Environment,
) -> Result<Request, Failure> {
    let duration = flags.duration.or(environment.duration).filter(|duration| !duration.is_zero());
    Ok(Request {
        default: dose(select, flags.frequency, environment),
        start_after: flags.start_after.or(environment.start_after).unwrap_or_default(),
        duration,
        children: !flags.no_children,
        callers: flags.callers,
        ..selection(select, environment)?
    })
}

/// The default dose of targets; `frequency` is the flag's.
fn dose(select: &SelectArgs, frequency: Option<NonZeroU64>, environment: &Environment) -> Dose {
    Dose {
        delay: select.delay.or(environment.delay).unwrap_or(DEFAULT_DELAY),
        frequency: frequency.or(environment.frequency).map_or(1, u64::from),
    }
}

/// The source of the targets.
pub(super) fn targets(which: &TargetArgs, environment: &Environment) -> Result<TargetSource, Failure> {
    if !which.lines.is_empty() {
        return Ok(TargetSource::lines("--target", &which.lines));
    }
    let file = which.targets.as_ref().or(environment.targets.as_ref()).ok_or_else(|| {
        let text = "no targets: give some with --target PATTERN, or name a targets file with --targets \
                    FILE or SPEED_BUMP_TARGETS; `--help` shows what goes into it";
        Failure::new(USAGE, anyhow!(text))
    });
    Ok(TargetSource::File(file?.clone()))
}
