//! `sweep`: an experiment on a running service, and its report.

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow};

use super::{
    args::SweepArgs,
    environment::Environment,
    exit::{Failure, SYSTEM, USAGE},
    request,
    signals::StopSignals,
    sweep_progress::Progress,
    terminal::{Lines, tell, tell_as_is},
    words::tell_notices,
};
use crate::{
    calibrate::kept,
    experiment::{
        analysis::findings::findings,
        live::{Counted, Live, counted, wait_until},
        record::{Experiment, Measured, Rules, SCHEMA, Unit, Versions},
        report,
        run::{self, Options},
        subject::SubjectError,
    },
    policy::{Dose, Selection},
    prepare::{Prepared, Purpose, Request, notice::Notice},
    printable::printable_json,
    session::{handle::Handle, quit::Quit},
    stats::json::{self, JsonOutput},
    sys::clock::now,
    targets::{TargetIndex, source::TargetSource},
    units::Nanos,
};

/// The target whose calls are units comes first.
const PROGRESS: TargetIndex = TargetIndex(0);
/// Of all the time, calls are timed for this part.
const CENSUS: f64 = 0.06;
/// And for so long at least.
const LEAST_CENSUS: Duration = Duration::from_secs(2);
/// No dose at all.
const NOTHING: Dose = Dose { delay: Nanos(0), frequency: 1 };

/// Runs an experiment, and reports.
pub(super) fn run(arguments: &SweepArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let json = arguments.json.clone().map(JsonOutput::at).transpose();
    let json = json.map_err(|error| Failure::new(USAGE, error))?;
    let request = request(arguments, &environment)?;
    let quit = Quit::default();
    let asks = quit.clone();
    let _signals = StopSignals::on_each(move || asks.ask())
        .context("cannot listen for signals")
        .map_err(|error| Failure::new(SYSTEM, error))?;
    let mut progress = Progress::new(arguments.quiet, stderr().is_terminal());

    let Counted { functions, candidates, census, progress: unit } =
        count(arguments, &request, &quit, &mut progress)?;
    let unit = unit.ok_or_else(|| {
        let text = format!(
            "--progress {}: no call of it came in {} s: is the service under load, and does the pattern \
             select the function (`list -t PATTERN` shows it)?",
            arguments.progress,
            (census.end_ns.0 - census.start_ns.0) / 1_000_000_000
        );
        Failure::new(USAGE, anyhow!(text))
    })?;
    if candidates.iter().all(|candidate| candidate.calls == 0) {
        let text = "none of the selected functions was called: nothing to experiment on";
        return Err(Failure::new(USAGE, anyhow!(text)));
    }

    let file = unit.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let measured = Measured {
        schema: SCHEMA.to_owned(),
        seed: arguments.seed.unwrap_or_else(seed),
        versions: Versions {
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("SPEED_BUMP_COMMIT").to_owned(),
        },
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpu: kept::processor().unwrap_or_default(),
        command: std::env::args_os().map(|of| of.to_string_lossy().into_owned()).collect(),
        rules: Rules {
            worth: arguments.worth,
            threshold: arguments.threshold,
            max_slowdown: arguments.max_slowdown,
            closed_loop: arguments.closed_loop,
            planned_blocks: 0,
        },
        unit: Unit {
            name: format!("call of {} ({file})", unit.name),
            source: format!("--progress {}", arguments.progress),
        },
        candidates,
        census,
        phases: Vec::new(),
        slices: Vec::new(),
        aborted: None,
    };
    let handle = start(arguments, &request, &quit, false)?;
    let options = Options {
        total: arguments.time.saturating_sub(census_time(arguments)),
        slice: arguments.slice,
        per_function: arguments.per_function,
        longest_call: arguments.longest_call,
    };
    let mut subject = Live::new(&handle, &quit, PROGRESS, functions);
    let measured =
        run::run(&mut subject, &options, measured, &mut |measured, now| progress.show(measured, now));
    handle.stop();
    drop(handle);
    progress.end();

    let findings = findings(&measured);
    let experiment = Experiment { measured, findings };
    if !matches!(json, Some(JsonOutput::Stdout)) {
        Lines::from_iter(report::render(&experiment.measured, &experiment.findings).lines()).print();
    }
    write(json.as_ref(), &experiment)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the JSON; to standard error where it cannot be written, as nothing that was measured is to be lost.
fn write(json: Option<&JsonOutput>, experiment: &Experiment) -> Result<(), Failure> {
    let Some(Err(error)) = json.map(|json| json.write(experiment)) else { return Ok(()) };
    let text = json::text(experiment).map_err(|error| Failure::new(SYSTEM, error))?;
    tell_as_is(printable_json(&text).trim_end());
    Err(Failure::new(SYSTEM, anyhow!("{error}; it stands above, on standard error")))
}

fn request(arguments: &SweepArgs, environment: &Environment) -> Result<Request, Failure> {
    let others = request::targets(&arguments.which, environment)?.kept();
    let others = others.map_err(|error| Failure::new(USAGE, error))?;
    let first = TargetSource::lines("--progress", &[&arguments.progress]);
    let targets = TargetSource::Before { first: Box::new(first), others: Box::new(others) };
    Ok(Request {
        engine: arguments.way.engine,
        entry: arguments.way.entry,
        inject: !arguments.way.no_inject,
        inject_timeout: arguments.way.inject_timeout,
        accept_upstream_module: arguments.way.accept_upstream_module,
        children: !arguments.no_children,
        ..Request::new(targets)
    })
}

/// Starts a session without delays, in which calls are timed or not.
fn start(arguments: &SweepArgs, request: &Request, quit: &Quit, times: bool) -> Result<Handle, Failure> {
    let request = Request { times, ..request.clone() };
    let mut prepared = Prepared::of_processes(&arguments.pids, &request, Purpose::Attach)?;
    // What the targets file says of delays is for sessions.
    let targets: Vec<TargetIndex> = prepared.targets.iter().map(|(index, _)| index).collect();
    for index in targets {
        let set = prepared.settings.policies.set(&Selection::Target(index), NOTHING);
        set.map_err(|error| Failure::new(USAGE, error))?;
    }
    prepared.notices.retain(|notice| {
        !matches!(notice, Notice::BelowFloor { .. } | Notice::BelowColdFloor { .. })
            && (times || !is_of_looks(notice))
    });
    tell_notices(&prepared.notices);
    Ok(prepared.start(quit.next_stop())?)
}

/// Whether the first session has told it already.
fn is_of_looks(notice: &Notice) -> bool {
    !matches!(notice, Notice::OtherSession { .. } | Notice::AttachWouldFail { .. })
}

/// Counts and times calls for a while.
fn count(
    arguments: &SweepArgs,
    request: &Request,
    quit: &Quit,
    progress: &mut Progress,
) -> Result<Counted, Failure> {
    let handle = start(arguments, request, quit, true)?;
    let time = census_time(arguments);
    progress.line(&format!("census: calls are counted and timed for {}", Nanos::from(time)));
    let system = |error: SubjectError| match error {
        SubjectError::Stopped => Failure::new(USAGE, anyhow!("stopped before anything was measured")),
        error => Failure::new(SYSTEM, anyhow!("{error}")),
    };
    let earlier = handle.snapshot().map_err(|error| Failure::new(SYSTEM, error))?;
    wait_until(&handle, quit, now() + Nanos::from(time)).map_err(system)?;
    let later = handle.snapshot().map_err(|error| Failure::new(SYSTEM, error))?;
    let report = handle.report();
    if let Some(report) = &report {
        for text in &report.warnings {
            tell(format_args!("speed-bump-ebpf: warning: {text}"));
        }
    }
    let targets = handle.controls().targets();
    Ok(counted(&earlier, &later, &targets, PROGRESS, report.as_ref()))
}

fn census_time(arguments: &SweepArgs) -> Duration {
    arguments.time.mul_f64(CENSUS).max(LEAST_CENSUS)
}

/// Another one each time.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64) % 1_000_000_000
}
