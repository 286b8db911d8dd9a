//! The bare command: attach, delay, count, and leave.

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    args::{AttachArgs, SelectArgs, SessionArgs},
    engine,
    environment::Environment,
    exit::{Failure, SYSTEM, USAGE},
    kmod,
    prepare::{self, Prepared, Purpose},
    terminal::{Lines, tell, tell_as_is},
};
use crate::{
    kernel::{TaskOffsets, namespace::Namespace},
    policy::PolicyTable,
    printable::printable_json,
    session::{
        Session, SessionError, Settings,
        run::{Ended, Listen, Signals, run as run_session},
    },
    stats::{
        json::{self, JsonOutput},
        report::SessionReport,
        table::{self, FUNCTIONS_SHOWN},
    },
    units::Nanos,
};

/// How often the live table is drawn: 2 Hz.
pub(super) const REFRESH: Duration = Duration::from_millis(500);

/// Attaches and stays until something ends the session.
pub fn run(arguments: &AttachArgs, verbose: bool) -> Result<ExitCode, Failure> {
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let flags = &arguments.session;
    let json = flags.json.clone().map(JsonOutput::at).transpose();
    let json = json.map_err(|error| Failure::new(USAGE, error))?;
    if arguments.select.engine.is_kmod() {
        return kmod::attach(arguments, &environment, json.as_ref(), verbose);
    }
    let on_terminal = stderr().is_terminal();
    // Where nobody watches, the table at the end says it all.
    let watched = !flags.quiet && (on_terminal || verbose);
    let default = prepare::default_dose(&arguments.select, flags.frequency, &environment);
    let Prepared { resolver, processes, policies, notices } =
        prepare::prepare(&arguments.processes, &arguments.select, &environment, default, Purpose::Attach)?;
    for notice in notices {
        notice.after("speed-bump-ebpf: ").tell();
    }
    if watched {
        for (process, plan) in &processes {
            let engine = engine::in_words(&policies, plan, resolver.calibration());
            prepare::header(process, plan, resolver.calibration(), &engine).tell();
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
    let settings = Settings {
        strict: arguments.processes.strict,
        ..settings(policies, &arguments.select, flags, &environment)
    };
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

    let live = (!flags.quiet && on_terminal).then(live_table);
    let ended = runtime
        .block_on(run_session(&mut session, Listen::To(signals), live.as_ref().map(|_| REFRESH), |session| {
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
    tell_report(flags, &report, &[], json.as_ref())?;
    let ended = ended?;
    if watched {
        tell_end(ended, &report);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the report, but for warnings that were told before, and writes it where it was asked for.
pub(super) fn tell_report(
    flags: &SessionArgs,
    report: &SessionReport,
    told: &[String],
    json: Option<&JsonOutput>,
) -> Result<(), Failure> {
    if !flags.quiet {
        Lines::from_iter(table::render(report, FUNCTIONS_SHOWN).lines()).tell();
    }
    report.warnings.iter().filter(|warning| !told.contains(warning)).for_each(|text| tell_warning(text));
    json.map_or(Ok(()), |json| write_json(json, report))
}

pub(super) fn tell_warning(text: &str) {
    tell(format_args!("speed-bump-ebpf: warning: {text}"));
}

/// Writes the report as JSON; to standard error if it cannot be written where it was asked for, as nothing
/// that was counted is to be lost.
pub(super) fn write_json(json: &JsonOutput, report: &SessionReport) -> Result<(), Failure> {
    let Err(error) = json.write(report) else { return Ok(()) };
    let text = json::text(report).map_err(|error| Failure::new(SYSTEM, error))?;
    tell_as_is(printable_json(&text).trim_end());
    Err(Failure::new(SYSTEM, anyhow!("{error}; it stands above, on standard error")))
}

/// Says why a session ended.
pub(super) fn tell_end(ended: Ended, report: &SessionReport) {
    let why = match ended {
        Ended::Elapsed => "the window closed".to_owned(),
        Ended::Signal(name) => format!("stopped by {name}"),
        Ended::TargetGone => "the target ended".to_owned(),
    };
    tell(format_args!("detached after {}: {why}", Nanos::from(report.duration)));
}

/// What flags and environment say of a session.
pub(super) fn settings(
    policies: PolicyTable,
    select: &SelectArgs,
    flags: &SessionArgs,
    environment: &Environment,
) -> Settings {
    let duration = flags.duration.or(environment.duration).filter(|duration| !duration.is_zero());
    Settings {
        policies,
        start_after: flags.start_after.or(environment.start_after).unwrap_or_default(),
        duration,
        children: !flags.no_children,
        strict: false,
        inject_timeout: select.inject_timeout,
    }
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

/// Where the running kernel keeps what following forks and execs needs; without it they are found by looking.
pub(super) fn follow_offsets() -> Option<TaskOffsets> {
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
