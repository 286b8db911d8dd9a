//! `cargo xtask bench start`: how long a user waits for the first delay, and for the tool's end.
//!
//! The target reports when its first delayed call began, on the clock that the bench reads before it executes
//! the tool. The first session finds no earlier measurements.

use std::{
    fs, io,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use speed_bump_testing::{
    Fixture, Service, places,
    pythons::{self, Form},
};

/// The file with the tool's measurements.
const KEPT: &str = "/run/speed-bump-ebpf/costs.json";
/// The delay of each call.
const DELAY: &str = "5ms";
/// A call that takes longer counts as delayed. Hardly any call without a delay takes so long.
const MIN: Duration = Duration::from_millis(4);

#[derive(Args)]
pub(crate) struct Options {
    /// Sessions for each row, after the first.
    #[arg(long, default_value_t = 20)]
    sessions: usize,
}

/// A session, as its user and its target observe it.
#[derive(Clone, Copy, Debug)]
struct Times {
    first_delay: Duration,
    leaving: Duration,
}

/// Prints a line for each program.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    println!(
        "medians and worst of {} sessions; ms from the start of the tool to the first delayed call, and from \
         SIGINT to its exit;\n`first`: a session that finds no kept measurements of this machine",
        options.sessions
    );
    println!(
        "{:<34} {:<8} {:>12} {:>8} {:>8}   {:>12} {:>8}",
        "", "engine", "first delay", "worst", "first", "SIGINT, exit", "worst"
    );
    let fixture = Fixture::compile(&places::fixtures().join("start.c"), &["-O2"])?;
    let native = Service::start(&mut Command::new(fixture.program()))?;
    let target = "native:*/program:hot\n";
    row(tool, options, "C program", native, target, "bpf")?;
    for python in pythons::find()?.iter().filter(|python| python.form != Form::Container) {
        for engine in ["helper", "bpf"] {
            let service = Service::start(&mut python.command(&places::fixtures().join("start.py")))?;
            row(tool, options, &python.to_string(), service, "py:*/start.py:hot\n", engine)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(
    tool: &Path,
    options: &Options,
    name: &str,
    mut service: Service,
    target: &str,
    engine: &str,
) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let targets = folder.path().join("targets.txt");
    fs::write(&targets, target).with_context(|| format!("cannot write {}", targets.display()))?;
    let mut session = || {
        let mut command = Command::new(tool);
        command.args([
            "--pid",
            &service.pid().to_string(),
            "--delay",
            DELAY,
            "--engine",
            engine,
            "--targets",
        ]);
        command.arg(&targets).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let began = Duration::try_from(clock_gettime(ClockId::Monotonic))
            .context("the monotonic clock is negative")?;
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        times(child, began, &mut service)
    };
    match fs::remove_file(KEPT) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {KEPT}"));
        }
        _ => {}
    }
    let first = session()?;
    let sessions = (0..options.sessions.max(1)).map(|_| session()).collect::<Result<Vec<_>>>()?;
    let sorted = |of: fn(&Times) -> Duration| {
        let mut times: Vec<Duration> = sessions.iter().map(of).collect();
        times.sort_unstable();
        let at = |position: usize| times.get(position).map_or(0.0, |time| time.as_secs_f64() * 1000.0);
        (at(times.len() / 2), at(times.len() - 1))
    };
    let ((delay, worst_delay), (leaving, worst_leaving)) =
        (sorted(|times| times.first_delay), sorted(|times| times.leaving));
    println!(
        "{name:<34} {engine:<8} {delay:>12.1} {worst_delay:>8.1} {:>8.1}   {leaving:>12.1} \
         {worst_leaving:>8.1}",
        first.first_delay.as_secs_f64() * 1000.0
    );
    Ok(())
}

/// Waits for the first delayed call, and ends the session.
fn times(mut child: Child, began: Duration, service: &mut Service) -> Result<Times> {
    let seen = service.ask(&format!("watch {}", MIN.as_nanos()));
    let asked = Instant::now();
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a child has a positive PID")?;
    kill_process(pid, Signal::INT).context("cannot stop the tool")?;
    let status = child.wait().context("cannot wait for the tool")?;
    let leaving = asked.elapsed();
    ensure!(status.success(), "the tool ended: {status}");
    let seen = seen?;
    let at = seen.first().and_then(|event| event["at_ns"].as_u64()).context("the target saw no delay")?;
    Ok(Times { first_delay: Duration::from_nanos(at).saturating_sub(began), leaving })
}
