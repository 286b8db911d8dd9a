//! The bare command: attach, delay, count, and leave.

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    args::AttachArgs,
    environment::Environment,
    exit::{Failure, SYSTEM, USAGE},
    prepare::{self, Prepared, Purpose},
    terminal::tell,
};
use crate::{
    kernel::{TaskOffsets, namespace::Namespace},
    session::{
        Session, SessionError, Settings,
        run::{Ended, Signals, run as run_session},
    },
    stats::{
        json::JsonOutput,
        table::{self, FUNCTIONS_SHOWN},
    },
    units::Nanos,
};

/// How often the live table is drawn: 2 Hz.
const REFRESH: Duration = Duration::from_millis(500);

/// Attaches and stays until something ends the session.
pub fn run(arguments: &AttachArgs, verbose: bool) -> Result<ExitCode, Failure> {
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let json = arguments.json.clone().map(JsonOutput::from);
    if let Some(json) = &json {
        json.check().map_err(|error| Failure::new(USAGE, error))?;
    }
    let settings = settings(arguments, &environment);
    let on_terminal = stderr().is_terminal();
    // Where nobody watches, the table at the end says it all.
    let watched = !arguments.quiet && (on_terminal || verbose);
    let Prepared { resolver, processes, notices } =
        prepare::prepare(&arguments.select, &environment, Purpose::Attach)?;
    for notice in &notices {
        tell(format_args!("speed-bump-ebpf: {notice}"));
    }
    if watched {
        for (process, plan) in &processes {
            tell(prepare::header(process, plan, resolver.calibration()));
        }
    }

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot set up the event loop")
        .map_err(|error| Failure::new(SYSTEM, error))?;
    // Signals are handled from before the attach on: none of them may end us with the links' fate open.
    let entered = runtime.enter();
    let signals =
        Signals::new().context("cannot listen for signals").map_err(|error| Failure::new(SYSTEM, error))?;
    let mut session = match Session::start(resolver, settings, processes, follow_offsets()) {
        Err(SessionError::Stopped) => {
            tell(format_args!("speed-bump-ebpf: {}", SessionError::Stopped));
            return Ok(ExitCode::SUCCESS);
        }
        started => started?,
    };
    drop(entered);
    if watched {
        tell(format_args!("attached; Ctrl-C detaches"));
    }

    let live = (!arguments.quiet && on_terminal).then(live_table);
    let ended = runtime
        .block_on(run_session(&mut session, signals, live.as_ref().map(|_| REFRESH), |session| {
            if let Some(live) = &live {
                live.set_message(table::render_live(&session.report(), terminal_lines()));
            }
        }))
        .context("the event loop failed")
        .map_err(|error| Failure::new(SYSTEM, error));
    session.detach();
    if let Some(live) = live {
        live.finish_and_clear();
    }

    let report = session.report();
    if !arguments.quiet {
        tell(table::render(&report, FUNCTIONS_SHOWN).trim_end());
    }
    for warning in &report.warnings {
        tell(format_args!("speed-bump-ebpf: warning: {warning}"));
    }
    if let Some(json) = &json {
        json.write(&report).map_err(|error| Failure::new(SYSTEM, error))?;
    }
    let ended = ended?;
    if watched {
        let why = match ended {
            Ended::Elapsed => "the window closed".to_owned(),
            Ended::Signal(name) => format!("stopped by {name}"),
            Ended::TargetGone => "the target ended".to_owned(),
        };
        tell(format_args!("detached after {}: {why}", Nanos::from(report.duration)));
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(arguments: &AttachArgs, environment: &Environment) -> Settings {
    let duration = arguments.duration.or(environment.duration).filter(|duration| !duration.is_zero());
    Settings {
        delay: prepare::delay(&arguments.select, environment),
        frequency: arguments.frequency.or(environment.frequency).map_or(1, u64::from),
        start_after: arguments.start_after.or(environment.start_after).unwrap_or_default(),
        duration,
        children: !arguments.no_children,
        strict: arguments.select.strict,
        inject_timeout: arguments.select.inject_timeout,
    }
}

/// Lines that a table may take without scrolling.
fn terminal_lines() -> usize {
    let lines = rustix::termios::tcgetwinsize(stderr()).map_or(24, |size| usize::from(size.ws_row));
    lines.saturating_sub(2)
}

fn live_table() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    bar
}

/// Where the running kernel keeps what following forks and execs needs; without it they are found by looking.
fn follow_offsets() -> Option<TaskOffsets> {
    if Namespace::Pid.is_initial() != Some(true) {
        tracing::info!("not in the initial PID namespace: forks and execs are found by polling");
        return None;
    }
    match TaskOffsets::read() {
        Ok(offsets) => Some(offsets),
        Err(error) => {
            tracing::info!("forks and execs are found by polling: {error}");
            None
        }
    }
}
