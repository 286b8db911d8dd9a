//! `cargo xtask bench`: measures on this machine what we promise. Neither tests nor CI run it.
//!
//! It pins nothing and changes no setting of the system, so the numbers are those of an ordinary machine. A
//! busy machine spoils them.

mod accuracy;
mod big_library;
mod cycles;
mod neighbours;
mod peers;
mod planted;
mod profile;
mod python;
mod resolve;
mod start;
mod truth;

use std::{
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

use crate::{release, root, shell};

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Whether functions get slower by the requested time, measured inside C and Python services.
    Accuracy(accuracy::Options),
    /// How long resolving takes: 50,000 symbols and 500 MB, one glob and 1,000 targets.
    Resolve,
    /// How long attaching and detaching take with 1 to 10,000 probe sites, and what a hit costs.
    Cycles,
    /// What Python programs lose while the tool is attached and nothing matches, and after it has detached;
    /// and what a matched call costs.
    Python(python::Options),
    /// How long it takes from the start of the tool to the first delay, and from SIGINT to its exit.
    Start(start::Options),
    /// What a call loses to this tool, and to other tools that could delay it.
    Peers(peers::Options),
    /// Whether a delayed function affects its program like a function that is really slower.
    Truth(truth::Options),
    /// How long a session takes to change doses and to read its counters, also while helpers come and go.
    Handle,
    /// What a call loses at a probe, compared with an empty BPF program at the same instruction.
    Trap,
    /// What sweeps find in services for which the truth is known.
    Planted(planted::Options),
    /// Whether the calls and own times of `--times` are those of cProfile for the same calls.
    Profile(profile::Options),
    /// Whether experiments are as certain as they claim: many of them, on simulated services.
    Statistics,
    /// How long it takes to make reports, and how long they are.
    Reports,
    /// By how much a system call on a socket gets slower while requests are counted.
    Sockets,
    /// How long a thread is stopped while the helper is loaded, and which steps take the time. One row for
    /// each activity of the program.
    Inject,
}

/// Builds the tool if necessary, and runs a bench.
pub(crate) fn run(bench: &Bench) -> Result<ExitCode> {
    let tool = || {
        let tool = release::build()?;
        root::go_on_as_root(&tool)?;
        Ok::<_, anyhow::Error>(tool)
    };
    match bench {
        Bench::Inject => of_library("speed-bump-user", "inject"),
        Bench::Handle => of_library("speed-bump-user", "handle"),
        Bench::Trap => of_library("speed-bump-user", "trap"),
        Bench::Statistics => of_library("speed-bump-experiment", "statistics"),
        Bench::Sockets => of_library("speed-bump-user", "sockets"),
        Bench::Reports => of_library("speed-bump-user", "reports"),
        Bench::Accuracy(options) => accuracy::run(&tool()?, options),
        Bench::Resolve => resolve::run(&tool()?),
        Bench::Python(options) => python::run(&tool()?, options),
        Bench::Start(options) => start::run(&tool()?, options),
        Bench::Peers(options) => peers::run(&tool()?, options),
        Bench::Planted(options) => planted::run(&tool()?, options),
        Bench::Profile(options) => profile::run(&tool()?, options),
        Bench::Truth(options) => truth::run(&tool()?, options),
        Bench::Cycles => cycles::run(&tool()?).map(|()| ExitCode::SUCCESS),
    }
}

/// Runs a bench of one of the library's crates.
fn of_library(package: &str, name: &str) -> Result<ExitCode> {
    let mut bench = shell::cargo();
    bench.args(["bench", "-p", package, "--bench", name]);
    let mut runs = root::split(bench, false)?;
    for command in &mut runs.commands {
        let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
        if !status.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command to its end. Returns its standard output, and how long it took.
fn timed(command: &mut Command) -> Result<(String, Duration)> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let took = start.elapsed();
    if !output.status.success() {
        bail!("{command:?} failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), took))
}

/// The quantile of the values at this share.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((share * values.len() as f64) as usize).copied().unwrap_or(f64::NAN)
}

/// Median time of some runs.
fn median_time(runs: usize, mut run: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let mut times = (0..runs.max(1)).map(|_| run()).collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("nothing was run")
}

/// How long the tool takes to start and to measure the machine, which each run does first.
fn calibration_time(tool: &Path) -> Result<Duration> {
    median_time(5, || Ok(timed(Command::new(tool).arg("calibrate"))?.1))
}

/// A time as the tool prints it, `1.5ms`.
fn nanos(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match text.get(digits.len()..)? {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some((digits.parse::<f64>().ok()? * scale).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_printed() {
        assert_eq!(nanos("580ns"), Some(580));
        assert_eq!(nanos("10.123us"), Some(10_123));
        assert_eq!(nanos("1.5s"), Some(1_500_000_000));
        assert_eq!(nanos("1.5"), None);
        assert_eq!(nanos("ns"), None);
    }
}
