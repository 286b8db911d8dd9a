//! `run`: starts a command, covers it from its first instruction, and ends with its exit code.

use std::{
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    process::{ExitCode, ExitStatus},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
};

use anyhow::{Context as _, anyhow};

use super::{
    args::RunArgs,
    attach::{REFRESH, listen, tell_report},
    environment::Environment,
    exit::{self, Failure, SYSTEM, USAGE},
    export::Export,
    outputs::Outputs,
    request,
    terminal::tell,
    words::tell_notices,
};
use crate::{
    exporter::Numbers,
    launch::{Launch, LaunchError, signals::HeldSignals, user::User},
    prepare::Prepared,
    process::Process,
    session::{bpf::BpfSession, run::Ended},
    units::Nanos,
};

/// Runs the command and returns its exit code.
pub fn run(arguments: &RunArgs, verbose: bool) -> Result<ExitCode, Failure> {
    // We hold the signals before the tool starts other threads, which would receive them.
    let signals = HeldSignals::hold();
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let flags = &arguments.session;
    if flags.json_lines.as_deref().is_some_and(|path| path.as_os_str() == "-") {
        let text = "--json-lines -: standard output belongs to the command; name a file";
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    let mut outputs = Outputs::open(flags)?;
    let mut export = Export::start(&flags.export, flags.quiet, &Numbers::default())?;
    let user = arguments.user.as_deref().map(User::named).transpose();
    let user = user.map_err(|error| Failure::new(USAGE, error))?;
    let system = |error: anyhow::Error| Failure::new(SYSTEM, error);
    let request = request::session(&arguments.select, flags, &environment)?;
    let prepared = Prepared::of_command(&request, &arguments.command)?;
    tell_notices(&prepared.notices);
    let mut session = BpfSession::prepare(prepared.resolver, prepared.settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot set up the event loop")
        .map_err(system)?;

    if let Some(signal) = signals.fatal() {
        tell(format_args!("speed-bump-ebpf: stopped by signal {signal} before the command was started"));
        return Ok(code(ExitStatus::from_raw(signal)));
    }
    let (mut launch, command_events) =
        Launch::start(&arguments.command, user.as_ref(), signals.inherited()).map_err(not_started)?;
    let mut is_detached = false;
    // From here on the command runs. An error of the tool must not end it.
    let watched = pass_signals_on(signals, &launch).and_then(|()| {
        session.expect(launch.pid(), command_events, launch.detach())?;
        let _control = listen(&session.controls(), &[launch.pid()]);
        outputs.ready();
        if verbose {
            tell(format_args!("attached; the command runs as process {}", launch.pid()));
        }
        let controls = session.controls();
        let ticks = (outputs.ticks() || export.ticks()).then_some(|| {
            outputs.tick(|| controls.report());
            export.tick(|| Numbers { session: controls.report(), sweep: None });
        });
        let ended = with_ticks(ticks, || {
            let ended = runtime.block_on(session.run());
            // Detach at once, even if writing outputs takes long.
            session.detach();
            is_detached = true;
            ended
        });
        ended.context("the event loop failed")
    });
    export.put(&Numbers::default());
    if !is_detached {
        session.detach();
    }
    if let Ok(Ended::Elapsed) = &watched
        && verbose
    {
        tell(format_args!("detached: the window closed; the command runs on"));
    }
    let status = launch.wait().context("cannot wait for the command").map_err(system)?;

    session.tell_unselected();
    let report = session.report();
    tell_report(flags, &report, &[]);
    if let Err(error) = watched {
        tell(format_args!("speed-bump-ebpf: error: the command was not covered to its end: {error:#}"));
    }
    let written = outputs.end(&report);
    if let Err(failure) = &written {
        failure.tell();
    }
    if verbose {
        tell(format_args!("detached after {}: the command ended: {status}", Nanos::from(report.duration)));
    }
    // A failure of the command takes precedence over a failure of the tool.
    Ok(if status.success() && written.is_err() { SYSTEM.into() } else { code(status) })
}

/// Runs `run`. Meanwhile calls `tick`, if any, every [`REFRESH`] on another thread.
fn with_ticks<T>(tick: Option<impl FnMut() + Send>, run: impl FnOnce() -> T) -> T {
    let (runs, is_over) = channel::<()>();
    thread::scope(|scope| {
        let ticking = tick.map(|mut tick| {
            thread::Builder::new().name("ticks".to_owned()).spawn_scoped(scope, move || {
                while is_over.recv_timeout(REFRESH) == Err(RecvTimeoutError::Timeout) {
                    tick();
                }
            })
        });
        if let Some(Err(error)) = ticking {
            tell(format_args!("speed-bump-ebpf: warning: outputs are only written at the end: {error}"));
        }
        let result = run();
        drop(runs);
        result
    })
}

fn pass_signals_on(signals: HeldSignals, launch: &Launch) -> anyhow::Result<()> {
    let process = Process::open(launch.pid());
    let pidfd = match &process {
        Ok(process) => process.as_fd().try_clone_to_owned()?,
        // The command has already ended.
        Err(_) => return Ok(()),
    };
    signals.pass_to(pidfd).context("cannot pass signals on")
}

/// The exit code for a command's status, as shells compute it.
fn code(status: ExitStatus) -> ExitCode {
    const SIGNALLED: i32 = 128;
    let code = status.code().or_else(|| Some(SIGNALLED + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn not_started(error: LaunchError) -> Failure {
    let code = match &error {
        LaunchError::NotFound { .. } => exit::NOT_FOUND,
        LaunchError::NotExecutable { .. } => exit::NOT_EXECUTABLE,
        LaunchError::System(_) => SYSTEM,
    };
    Failure::new(code, error)
}
