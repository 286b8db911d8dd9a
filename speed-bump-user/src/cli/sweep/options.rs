//! Options of a sweep from flags and environment.

use super::super::{
    args::{SweepArgs, units::BenchArgs},
    environment::Environment,
    exit::{Failure, USAGE},
    request,
};
use crate::{
    experiment::{
        metric::bench::Captured,
        sweep::{Benchmark, Options},
    },
    targets::source::TargetSource,
    units::Nanos,
};

/// Builds the options.
pub(super) fn from_flags(arguments: &SweepArgs, environment: &Environment) -> Result<Options, Failure> {
    Ok(Options {
        functions: functions(arguments, environment)?,
        units: arguments.units.named.clone(),
        bench: benchmark(&arguments.units.bench),
        guards: arguments.guards.clone(),
        load: arguments.load.clone(),
        time: arguments.time,
        wait_load: arguments.wait_load,
        slice: arguments.slice,
        seed: arguments.seed,
        worth: arguments.worth,
        threshold: arguments.threshold,
        max_slowdown: arguments.max_slowdown,
        longest_call: arguments.longest_call,
        closed_loop: arguments.closed_loop,
        group: arguments.group,
        doses: arguments.doses.clone(),
        record: arguments.record,
        engine: arguments.engine.engine,
        entry: arguments.engine.entry,
        inject: !arguments.engine.no_inject,
        inject_timeout: arguments.engine.inject_timeout,
        accept_upstream_module: arguments.engine.accept_upstream_module,
        children: !arguments.no_children,
    })
}

/// The source of targets, if there are any.
fn functions(arguments: &SweepArgs, environment: &Environment) -> Result<Option<TargetSource>, Failure> {
    let is_named = !arguments.which.lines.is_empty()
        || arguments.which.targets.is_some()
        || environment.targets.is_some();
    if !is_named {
        return Ok(None);
    }
    let targets = request::targets(&arguments.which, environment)?.kept();
    Ok(Some(targets.map_err(|error| Failure::new(USAGE, error))?))
}

fn benchmark(flags: &BenchArgs) -> Option<Benchmark> {
    let number = match flags.unit.as_str() {
        "s" => Captured::Time(Nanos(1_000_000_000)),
        "ms" => Captured::Time(Nanos(1_000_000)),
        "us" => Captured::Time(Nanos(1_000)),
        "ns" => Captured::Time(Nanos(1)),
        _ => Captured::PerSecond,
    };
    let command = flags.command.clone()?;
    Some(Benchmark { command, regex: flags.regex.clone(), number })
}
