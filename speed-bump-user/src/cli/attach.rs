//! The bare command: attach, delay, count, detach.

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{
    args::{AttachArgs, SessionArgs},
    environment::Environment,
    exit::{Failure, SYSTEM, USAGE},
    export::Export,
    live::LiveTable,
    outputs::Outputs,
    request,
    reread::Rereading,
    signals::{Second, StopSignals},
    terminal::{Lines, tell},
    words::{counted, headers, tell_notices},
};
use crate::{
    control::server::Server,
    exporter::Numbers,
    prepare::{Plans, Prepared, Purpose, Request},
    report::profile::{Edges, Limit, Printing, Profile, SortKey, print_edges},
    session::{SessionError, controls::Controls, handle::Outcome, run::Ended, stop::Stop},
    stats::{
        report::SessionReport,
        table::{self, FUNCTIONS_SHOWN},
    },
    units::{Nanos, Pid},
};

/// How often the live table and the exported numbers are updated: 2 Hz.
pub(super) const REFRESH: Duration = Duration::from_millis(500);

/// Attaches, and waits until something ends the session.
pub fn run(arguments: &AttachArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let flags = &arguments.session;
    let mut outputs = Outputs::open(flags)?;
    let mut export = Export::start(&flags.export, flags.quiet, &Numbers::default())?;
    let (on_terminal, began) = (stderr().is_terminal(), Instant::now());
    let watched = !flags.quiet;
    let request = Request {
        strict: arguments.processes.strict,
        ..request::session(&arguments.select, flags, &environment)?
    };
    let prepared = Prepared::of_processes(&arguments.processes.pids, &request, Purpose::Attach)?;
    tell_notices(&prepared.notices);
    let told = match &prepared.plans {
        Plans::Kmod(plan) => plan.told().to_vec(),
        Plans::Bpf(_) => Vec::new(),
    };
    if watched {
        headers(&prepared).iter().for_each(Lines::tell);
    }

    // Handle signals from before the attach on: none may end the tool while links are half attached.
    let stop = Stop::default();
    let signals = StopSignals::ask(stop.clone(), Second::with(request.engine))
        .context("cannot listen for signals")
        .map_err(|error| Failure::new(SYSTEM, error))?;
    let system = |error: anyhow::Error| Failure::new(SYSTEM, error);
    let rereading = Rereading::start(request.targets.clone(), request.allow_empty);
    let rereading = rereading.context("cannot listen for SIGUSR1").map_err(system)?;
    let session = match prepared.start(stop) {
        Err(SessionError::Stopped) => {
            let name = signals.first().unwrap_or("a signal");
            tell(format_args!("speed-bump-ebpf: stopped by {name} before anything was attached"));
            return Ok(ExitCode::SUCCESS);
        }
        started => started?,
    };
    rereading.attach_to(session.controls());
    let _control = listen(session.controls(), &arguments.processes.pids);
    outputs.ready();
    if watched {
        tell_attached(session.controls().known().len(), began);
    }

    let mut live = (!flags.quiet && on_terminal).then(LiveTable::new);
    let outcome = loop {
        match session.wait_for(REFRESH)? {
            Some(outcome) => break outcome,
            None => {
                outputs.tick(|| session.report());
                export.tick(|| Numbers { session: session.report(), sweep: None });
                if let Some(live) = &mut live
                    && let Some(report) = session.report()
                {
                    live.draw(&report);
                }
            }
        }
    };
    if let Some(live) = live {
        live.clear();
    }

    signals.session_is_over();
    let Outcome { ended, report } = outcome;
    let ended = ended.context("the event loop failed").map_err(|error| Failure::new(SYSTEM, error));
    tell_report(flags, &report, &told);
    export.put(&Numbers::default());
    outputs.end(&report)?;
    let ended = ended?;
    if watched {
        tell_end(ended, &signals, &report);
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets `set` change the session while the result lives. The session also runs if this fails.
pub(super) fn listen(controls: &Controls, pids: &[Pid]) -> Option<Server> {
    let server = Server::start(controls.clone(), pids.to_vec());
    server.inspect_err(|error| tracing::info!("`set` cannot reach this session: {error}")).ok()
}

/// Prints the report, without the warnings in `told`, which were printed before.
pub(super) fn tell_report(flags: &SessionArgs, report: &SessionReport, told: &[String]) {
    if !flags.quiet {
        Lines::from_iter(table::render(report, FUNCTIONS_SHOWN).lines()).tell();
        if flags.callers {
            tell_callers(report);
        }
    }
    if let Some(text) = table::session_inexact(report) {
        tell(format_args!("speed-bump-ebpf: warning: {text}"));
    }
    let warnings = report.warnings.iter().filter(|warning| !told.contains(warning));
    warnings.for_each(|text| tell(format_args!("speed-bump-ebpf: warning: {text}")));
}

/// Callers shown for each function.
const CALLERS_SHOWN: usize = 5;

/// Prints who called the functions that took the most time.
fn tell_callers(report: &SessionReport) {
    // If nothing was called, the table says so.
    let Ok(profile) = Profile::from_session(&report.into()) else { return };
    if profile.check_callers().is_err() {
        return tell("no selected function was called by a Python function");
    }
    let limits = vec![Limit::Count(FUNCTIONS_SHOWN)];
    let printing = Printing { sort: vec![SortKey::Cumulative], limits, ..Printing::default() };
    Lines::from_iter(print_edges(&profile, Edges::Callers, &printing, CALLERS_SHOWN).lines()).tell();
}

/// Prints that everything is attached, to how many functions, and how long that took.
fn tell_attached(functions: usize, began: Instant) {
    let (functions, took) = (counted(functions, "function"), began.elapsed().as_millis());
    tell(format_args!("attached; {functions}; it took {took} ms (Ctrl-C detaches)"));
}

/// Prints why a session ended.
fn tell_end(ended: Ended, signals: &StopSignals, report: &SessionReport) {
    let why = match ended {
        Ended::Stopped => format!("stopped by {}", signals.first().unwrap_or("a signal")),
        Ended::Elapsed | Ended::TargetGone | Ended::TargetReplaced => ended.to_string(),
    };
    tell(format_args!("detached after {}: {why}", Nanos::from(report.duration)));
}
