//! The bare command: attach, delay, count, and leave.

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    args::{AttachArgs, SessionArgs},
    environment::Environment,
    exit::{Failure, SYSTEM, USAGE},
    kmod, request,
    signals::StopSignals,
    terminal::{Lines, tell, tell_as_is},
    words::{header, tell_notices},
};
use crate::{
    control::server::Server,
    prepare::{Prepared, Purpose, Request},
    printable::printable_json,
    session::{SessionError, controls::Controls, handle::Outcome, run::Ended, stop::Stop},
    stats::{
        json::{self, JsonOutput},
        report::SessionReport,
        table::{self, FUNCTIONS_SHOWN},
    },
    units::{Nanos, Pid},
};

/// How often the live table is drawn: 2 Hz.
pub(super) const REFRESH: Duration = Duration::from_millis(500);

/// Attaches and stays until something ends the session.
pub fn run(arguments: &AttachArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let flags = &arguments.session;
    let json = flags.json.clone().map(JsonOutput::at).transpose();
    let json = json.map_err(|error| Failure::new(USAGE, error))?;
    if arguments.select.engine.is_kmod() {
        return kmod::attach(arguments, &environment, json.as_ref());
    }
    let (on_terminal, began) = (stderr().is_terminal(), Instant::now());
    let watched = !flags.quiet;
    let request = Request {
        strict: arguments.processes.strict,
        ..request::session(&arguments.select, flags, &environment)?
    };
    let prepared = Prepared::of_processes(&arguments.processes.pids, &request, Purpose::Attach)?;
    tell_notices(&prepared.notices);
    if watched {
        prepared.processes.iter().for_each(|(process, plan)| header(&prepared, process, plan).tell());
    }

    // Signals are handled from before the attach on: none of them may end us with the links' fate open.
    let stop = Stop::default();
    let signals = StopSignals::ask(stop.clone())
        .context("cannot listen for signals")
        .map_err(|error| Failure::new(SYSTEM, error))?;
    let session = match prepared.start(stop) {
        Err(SessionError::Stopped) => {
            let name = signals.first().unwrap_or("a signal");
            tell(format_args!("speed-bump-ebpf: stopped by {name} before anything was attached"));
            return Ok(ExitCode::SUCCESS);
        }
        started => started?,
    };
    let _control = listen(session.controls(), &arguments.processes.pids);
    if watched {
        tell_attached(began);
    }

    let live = (!flags.quiet && on_terminal).then(live_table);
    let outcome = loop {
        match session.wait_for(REFRESH)? {
            Some(outcome) => break outcome,
            None => {
                if let (Some(live), Some(report)) = (&live, session.report()) {
                    live.set_message(table::render_live(&report, terminal_lines()));
                }
            }
        }
    };
    if let Some(live) = live {
        live.finish_and_clear();
    }

    let Outcome { ended, report } = outcome;
    let ended = ended.context("the event loop failed").map_err(|error| Failure::new(SYSTEM, error));
    tell_report(flags, &report, &[]);
    write_json(json.as_ref(), &report)?;
    let ended = ended?;
    if watched {
        tell_end(ended, &signals, &report);
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the session be changed by `set`, as long as the result lives. It goes on without, too.
pub(super) fn listen(controls: &Controls, pids: &[Pid]) -> Option<Server> {
    let server = Server::start(controls.clone(), pids.to_vec());
    server.inspect_err(|error| tracing::info!("`set` cannot reach this session: {error}")).ok()
}

/// Prints the report, but for warnings that were told before.
pub(super) fn tell_report(flags: &SessionArgs, report: &SessionReport, told: &[String]) {
    if !flags.quiet {
        Lines::from_iter(table::render(report, FUNCTIONS_SHOWN).lines()).tell();
    }
    report.warnings.iter().filter(|warning| !told.contains(warning)).for_each(|text| tell_warning(text));
}

pub(super) fn tell_warning(text: &str) {
    tell(format_args!("speed-bump-ebpf: warning: {text}"));
}

/// Writes the report as JSON where it was asked for; to standard error if it cannot be written there, as
/// nothing that was counted is to be lost.
pub(super) fn write_json(json: Option<&JsonOutput>, report: &SessionReport) -> Result<(), Failure> {
    let Some(Err(error)) = json.map(|json| json.write(report)) else { return Ok(()) };
    let text = json::text(report).map_err(|error| Failure::new(SYSTEM, error))?;
    tell_as_is(printable_json(&text).trim_end());
    Err(Failure::new(SYSTEM, anyhow!("{error}; it stands above, on standard error")))
}

/// Says that everything is attached, and how long that took.
pub(super) fn tell_attached(began: Instant) {
    tell(format_args!("attached; it took {} ms (Ctrl-C detaches)", began.elapsed().as_millis()));
}

/// Says why a session ended.
pub(super) fn tell_end(ended: Ended, signals: &StopSignals, report: &SessionReport) {
    let why = match ended {
        Ended::Elapsed => "the window closed".to_owned(),
        Ended::Stopped => format!("stopped by {}", signals.first().unwrap_or("a signal")),
        Ended::TargetGone => "the target ended".to_owned(),
    };
    tell(format_args!("detached after {}: {why}", Nanos::from(report.duration)));
}

/// Lines that a table may take without scrolling.
pub(super) fn terminal_lines() -> usize {
    let lines = rustix::termios::tcgetwinsize(stderr()).map_or(24, |size| usize::from(size.ws_row));
    lines.saturating_sub(2)
}

pub(super) fn live_table() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    bar
}
