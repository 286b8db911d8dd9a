//! `sweep`: an experiment on a running service, and its report.

mod census;
mod find;
mod preparing;
mod progress;
mod sampled;
mod sharing;
mod unit;

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow};

use super::{
    args::SweepArgs,
    environment::Environment,
    exit::{Failure, GUARDED, NOT_VALID, SYSTEM, USAGE},
    export::{Export, SweepProgress},
    outputs::SweepOutputs,
    request,
    signals::{Second, StopSignals},
    terminal::{self, Lines, Stream, lost, print_as_is, style, tell_as_is},
    words::tell_notices,
};
use crate::{
    calibrate::kept,
    experiment::{
        guard::{Condition, Guards},
        live::{Counted, Live, NOTHING},
        machine::Surroundings,
        plan::Plan,
        record::{Experiment, Measured, Rules, SCHEMA, Unit, Versions},
        run::{self, Options, confirm::BASIC},
        schedule::Pace,
        subject::SubjectError,
    },
    policy::Selection,
    prepare::{Prepared, Purpose, Request, notice::Notice},
    report::text,
    session::{handle::Handle, quit::Quit},
    sys::clock::now,
    targets::{TargetIndex, source::TargetSource},
    units::Nanos,
};
use census::count;
use preparing::Preparing;
use progress::Progress;
use sampled::Found;
use unit::Units;

/// With less of all the time left after preparation than this part, there is nothing to measure.
const LEAST_LEFT: f64 = 0.2;
/// So many times what preparation takes is time enough.
const WANTED_LEFT: f64 = 3.0;

/// Runs an experiment, and reports.
pub(super) fn run(arguments: &SweepArgs) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let outputs = SweepOutputs::of(arguments)?;
    let unit = Units::of(arguments)?;
    let bounds = unit.bounds(&arguments.guards)?;
    let quit = Quit::default();
    let asks = quit.clone();
    let signals = StopSignals::on_each(move || asks.ask(), Second::with(arguments.way.engine))
        .context("cannot listen for signals")
        .map_err(|error| Failure::new(SYSTEM, error))?;
    let guards = watch(&arguments.guards, &quit)?;
    let mut exported = SweepProgress::new(arguments.guards.len());
    let mut export = Export::of(&arguments.export, arguments.quiet, &exported.before())?;
    let mut progress = Progress::new(arguments.quiet, stderr().is_terminal());
    let preparing = Preparing::begin(arguments.quiet, now() + Nanos::from(arguments.time));

    let broken = || guards.as_ref().and_then(Guards::broken);
    let or_guarded = |failure| broken().map_or(failure, guarded);
    let (unit, targets, found) = match named(arguments, &environment)? {
        Some(targets) => (unit, targets, None),
        None => {
            let found = find::find(arguments, unit, &quit, &preparing).map_err(or_guarded)?;
            (found.unit, found.targets, Some(found.found))
        }
    };
    let request = request(arguments, unit.before(targets));
    let times = unit.times() || found.as_ref().is_none_or(Found::may_time);
    let census = Request { times, ..request.clone() };
    let counted = count(arguments, &census, &unit, &quit, &preparing, found.is_none());
    let (mut counted, mut metrics, seen) = counted.map_err(or_guarded)?;
    if let Some(profile) = seen.profile.as_ref().or(found.as_ref().map(Found::profile)) {
        seen.find_sharing(&mut counted, profile, &*metrics.unit);
    }
    if let Some(found) = &found {
        found.complete(&mut counted);
    }
    let mut measured = begin(arguments, &unit, &counted)?;
    measured.sampling = found.as_ref().map(Found::record);
    if arguments.plan {
        let left = arguments.time.saturating_sub(begun.elapsed());
        drop(preparing);
        plan(arguments, &measured, left, seen.under_way).print();
        return Ok(ExitCode::SUCCESS);
    }
    // Where it counts how long calls take, they are timed all along.
    preparing.step("attach");
    let handle = start(arguments, &Request { times: unit.times(), ..request }, &quit, Notices::Known)?;
    metrics.begin(handle.controls()).map_err(|error| Failure::new(SYSTEM, error))?;
    drop(preparing);
    let options = Options {
        total: time_left(arguments.time, begun.elapsed())?,
        slice: arguments.slice,
        per_function: arguments.per_function,
        group: arguments.group,
        doses: arguments.doses.clone(),
        longest_call: arguments.longest_call,
        bounds,
        runs: unit.runs(),
        wait_load: arguments.wait_load,
    };
    if let Some(why) = run::no_room(&options, &measured) {
        return Err(Failure::new(USAGE, anyhow!(why)));
    }
    let before = Surroundings::now(&arguments.pids, !arguments.no_children);
    let subject = Live::new(&handle, &quit, metrics, counted.functions);
    let mut subject = subject.map_err(|error| Failure::new(SYSTEM, error))?;
    let mut measured = run::run(&mut subject, &options, measured, &mut |measured, now| {
        progress.show(measured, now);
        export.tick(|| exported.numbers(measured, now, handle.report()));
    });
    measured.around = Some(before.until_now(!arguments.no_children));
    measured.missed_calls = seen.missed_calls;
    let missed = handle.report().map(|report| report.missed_calls).unwrap_or_default();
    let is_new = |text: &String| !measured.missed_calls.contains(text);
    let missed: Vec<_> = missed.into_iter().filter(is_new).collect();
    measured.missed_calls.extend(missed);
    handle.stop();
    drop(handle);
    signals.session_is_over();
    progress.end();
    if let Some(why) = broken() {
        measured.aborted = Some(format!("a guard ended it: {why}"));
        measured.guard = Some(why.to_owned());
    }
    export.put(&exported.over(&measured));

    let experiment = Experiment::of(measured);
    if !outputs.take_stdout() {
        let text = text::render(&experiment, style());
        print_as_is(text.trim_end());
        // Nothing that was measured is to be lost.
        terminal::flush();
        if lost(Stream::Output).is_some() {
            tell_as_is(text.trim_end());
        }
    }
    outputs.write(&experiment)?;
    if let Some(why) = experiment.measured.guard.as_deref() {
        return Err(guarded(why));
    }
    let missed = experiment.measured.missed_calls.first();
    match experiment.measured.not_valid().or_else(|| missed.cloned()) {
        Some(why) => Err(Failure::new(NOT_VALID, anyhow!("the experiment ended without a verdict: {why}"))),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn guarded(why: &str) -> Failure {
    Failure::new(GUARDED, anyhow!("a guard ended the experiment: {why}"))
}

/// What preparation left of all the time.
fn time_left(time: Duration, took: Duration) -> Result<Duration, Failure> {
    let left = time.saturating_sub(took);
    if left >= time.mul_f64(LEAST_LEFT) {
        return Ok(left);
    }
    let seconds = |time: Duration| Nanos::from(Duration::from_secs(time.as_secs()));
    Err(Failure::new(
        USAGE,
        anyhow!(
            "preparation took {} of the {} that --for gives, so that too little is left to measure anything: \
             --for {} or more",
            seconds(took),
            Nanos::from(time),
            seconds(took.mul_f64(WANTED_LEFT) + Duration::from_secs(1))
        ),
    ))
}

/// What would be done with the functions that are worth an experiment.
fn plan(arguments: &SweepArgs, measured: &Measured, total: Duration, under_way: Option<f64>) -> Lines {
    let unit = measured.census.time_per_unit();
    let pace = Pace { unit, under_way: under_way.filter(|_| measured.is_quick()) };
    let functions = measured.worth_it(unit).count();
    let basic = BASIC * arguments.max_slowdown;
    let plan = Plan::of(total, functions, arguments.per_function, pace, arguments.slice, basic);
    let mut lines = Lines::from(format!(
        "{functions} of {} functions take {:.1} % of a unit's time or more; a unit takes {}",
        measured.candidates.len(),
        arguments.worth * 100.0,
        Nanos(unit as u64)
    ));
    plan.lines().into_iter().for_each(|line| lines.push(line));
    lines
}

/// Has guards end everything when one is broken. They have to hold to begin with.
fn watch(conditions: &[Condition], quit: &Quit) -> Result<Option<Guards>, Failure> {
    if conditions.is_empty() {
        return Ok(None);
    }
    let is_wanted = || !quit.is_asked();
    if let Some(why) = conditions.iter().find_map(|condition| condition.broken_while(is_wanted)) {
        return Err(Failure::new(
            GUARDED,
            anyhow!("a guard does not hold before anything was delayed: {why}"),
        ));
    }
    let quit = quit.clone();
    let guards = Guards::watch(conditions.to_vec(), move || quit.ask());
    Ok(Some(guards.context("cannot watch the guards").map_err(|error| Failure::new(SYSTEM, error))?))
}

/// The record, before its first slice.
fn begin(arguments: &SweepArgs, unit: &Units, counted: &Counted) -> Result<Measured, Failure> {
    let Counted { candidates, census, progress, .. } = counted;
    if census.units <= 0.0 {
        let text = format!(
            "{}: no unit of work was done in {} s: is the service under load, and does `list -t PATTERN` \
             show the function? If one takes longer than that, --for has to be some thousand times as long \
             as it takes",
            unit.source(),
            (census.end_ns.0 - census.start_ns.0) / 1_000_000_000
        );
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    if candidates.iter().all(|candidate| candidate.calls == 0) {
        let text = "none of the selected functions was called: nothing to experiment on";
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    let name = match progress {
        Some(function) => {
            let file = function.file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            format!("call of {} ({file})", function.name)
        }
        None => unit.name().to_owned(),
    };
    Ok(Measured {
        schema: SCHEMA.to_owned(),
        seed: arguments.seed.unwrap_or_else(seed),
        versions: Versions {
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            commit: speed_bump_session::COMMIT.to_owned(),
        },
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpu: kept::processor().unwrap_or_default(),
        command: std::env::args_os().map(|of| of.to_string_lossy().into_owned()).collect(),
        rules: Rules {
            worth: arguments.worth,
            threshold: arguments.threshold,
            max_slowdown: arguments.max_slowdown,
            // A benchmark waits for what it has asked for.
            closed_loop: arguments.closed_loop || unit.runs(),
            planned_blocks: 0,
        },
        unit: Unit { name, source: unit.source() },
        metrics: unit.further(),
        by: unit.by(),
        candidates: candidates.clone(),
        groups: Vec::new(),
        census: *census,
        sampling: None,
        around: None,
        missed_calls: Vec::new(),
        phases: Vec::new(),
        slices: Vec::new(),
        load_changes: Vec::new(),
        aborted: None,
        invalid: None,
        guard: None,
    })
}

/// The targets that are named, if any are.
fn named(arguments: &SweepArgs, environment: &Environment) -> Result<Option<TargetSource>, Failure> {
    let is_named = !arguments.which.lines.is_empty()
        || arguments.which.targets.is_some()
        || environment.targets.is_some();
    if !is_named {
        return Ok(None);
    }
    let targets = request::targets(&arguments.which, environment)?.kept();
    Ok(Some(targets.map_err(|error| Failure::new(USAGE, error))?))
}

fn request(arguments: &SweepArgs, targets: TargetSource) -> Request {
    Request {
        engine: arguments.way.engine,
        entry: arguments.way.entry,
        inject: !arguments.way.no_inject,
        inject_timeout: arguments.way.inject_timeout,
        accept_upstream_module: arguments.way.accept_upstream_module,
        children: !arguments.no_children,
        ..Request::new(targets)
    }
}

/// Whether a session tells what is to be known of its targets. Later ones have nothing new to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notices {
    Told,
    Known,
}

/// So often it is looked whether preparation is still wanted.
const WANTED: Duration = Duration::from_millis(10);

/// What a session begins with. Files of processes may take long to read, and nothing is attached meanwhile:
/// so preparation is not waited for once the end is asked for.
fn prepared(arguments: &SweepArgs, request: &Request, quit: &Quit) -> Result<Prepared, Failure> {
    let (pids, request) = (arguments.pids.clone(), request.clone());
    let prepare = move || Prepared::of_processes(&pids, &request, Purpose::Attach);
    let thread = thread::Builder::new().name("preparation".to_owned()).spawn(prepare);
    let thread = thread.context("cannot start a thread").map_err(|error| Failure::new(SYSTEM, error))?;
    while !thread.is_finished() {
        if quit.is_asked() {
            return Err(stopped());
        }
        thread::sleep(WANTED);
    }
    match thread.join() {
        Ok(prepared) => Ok(prepared?),
        Err(_) => Err(Failure::new(SYSTEM, anyhow!("preparation ended in the midst: this is a bug"))),
    }
}

/// Starts a session without delays.
fn start(arguments: &SweepArgs, request: &Request, quit: &Quit, notices: Notices) -> Result<Handle, Failure> {
    let mut prepared = prepared(arguments, request, quit)?;
    // What the targets file says of delays is for other sessions.
    let targets: Vec<TargetIndex> = prepared.targets.iter().map(|(index, _)| index).collect();
    for index in targets {
        let set = prepared.settings.policies.set(&Selection::Target(index), NOTHING);
        set.map_err(|error| Failure::new(USAGE, error))?;
    }
    let is_told = |notice: &Notice| {
        notices == Notices::Told
            && !matches!(notice, Notice::BelowFloor { .. } | Notice::BelowColdFloor { .. })
    };
    prepared.notices.retain(is_told);
    tell_notices(&prepared.notices);
    Ok(prepared.start(quit.next_stop())?)
}

/// Why nothing came of it: it ended before the first slice.
fn before_slices(error: SubjectError, source: &str) -> Failure {
    match error {
        SubjectError::Stopped => stopped(),
        SubjectError::Metric(error) => Failure::new(USAGE, anyhow!("{source}: {error}")),
        error => Failure::new(SYSTEM, error),
    }
}

fn stopped() -> Failure {
    Failure::new(USAGE, anyhow!("stopped before anything was measured"))
}

/// Another one each time.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64) % 1_000_000_000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn preparation_is_part_of_the_time() {
        let seconds = Duration::from_secs;
        assert_eq!(time_left(seconds(120), seconds(20)).unwrap(), seconds(100));
        assert_eq!(time_left(seconds(10), seconds(8)).unwrap(), seconds(2));
        for took in [9, 10, 30] {
            let failure = time_left(seconds(10), seconds(took)).unwrap_err();
            assert_eq!(failure.code, USAGE);
            let text = failure.error.to_string();
            assert!(text.starts_with(&format!("preparation took {took}s of the 10s that --for")), "{text}");
            assert!(text.ends_with(&format!("--for {}s or more", 3 * took + 1)), "{text}");
        }
    }
}
