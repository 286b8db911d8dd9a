//! `cargo xtask bench accuracy`: does a function lose the requested time, as its caller sees it?
//!
//! A round is four slices of one running process: not attached; attached with delay 0; attached with the
//! delay; not attached, which is also the first slice of the next round. The lost time counts from the mean
//! of the first and the last slice, so that a drift of the machine affects both sides. The verdict is about
//! the median over the rounds.
//!
//! A delayed call is to take longer than a call without the tool by the requested time: the trap is part of
//! the delay. The attached process with delay 0 pays only for the trap, which is the column `trap`. The loss
//! less the trap is what a change of policy adds in an attached process.

pub(super) mod site;
mod subject;

use std::{fs, path::Path, process::ExitCode, thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use speed_bump_testing::session::Attached;

use super::neighbours::{Busy, Neighbours};
use site::Site;
use subject::{Function, Kind, Subject};

/// Each delay in ns with the greatest error, in %, that we promise for it; 1 ms must keep the promise for 100
/// us.
const DELAYS: [(u32, f64); 3] = [(10_000, 2.0), (100_000, 0.5), (1_000_000, 0.5)];
/// Time from the attach to the first measured call: by then every thread has met its probes, and the kernel
/// has optimised their sites.
const SETTLE: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds of four slices for each delay.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds of a slice.
    #[arg(long, default_value_t = 600)]
    slice_ms: u64,
    /// Measure only programs whose name contains this, such as `3.12`.
    #[arg(long, default_value = "")]
    only: String,
    /// The engine, as for the tool's own `--engine`.
    #[arg(long, default_value = "auto")]
    engine: String,
    #[command(flatten)]
    busy: Busy,
}

/// Prints a line for each function and delay; fails when a promise is broken.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    let _neighbours = Neighbours::start(options.busy)?;
    let (kinds, missing) = Kind::all()?;
    println!("{} rounds of 4 slices of {} ms; medians; times in us", options.rounds, options.slice_ms);
    println!("load average at the start: {}", load_average());
    let mut missed = 0;
    for kind in kinds {
        let mut subject = kind.start()?;
        if !subject.name.contains(&options.only) {
            continue;
        }
        // By then every function has been called, so that a perf map names it.
        thread::sleep(Duration::from_millis(500));
        let sites = site::list(
            tool,
            subject.service.pid(),
            &subject.targets(),
            subject.flags,
            subject.functions.len(),
        )?;
        println!("\n{}", subject.name);
        println!(
            "  {:<14} {:<16} {:>9} {:>8} {:>7} {:>8} {:>8}  {:<15} verdict",
            "function", "site", "requested", "unprobed", "trap", "lost", "error", "error by round"
        );
        for (delay, bound) in DELAYS {
            let measured = measure(tool, &mut subject, delay, options)?;
            for ((function, site), rounds) in subject.functions.iter().zip(&sites).zip(&measured) {
                let result = Measured::new(f64::from(delay), rounds);
                let verdict = Verdict::new(&result, bound, site);
                missed += usize::from(verdict == Verdict::Missed);
                result.print(function, site, verdict);
            }
        }
    }
    println!();
    for what in &missing {
        println!("not measured: {what}");
    }
    println!("load average at the end: {}", load_average());
    println!("bounds missed: {missed}");
    Ok(if missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Medians of one function in the slices of a round, in ns.
#[derive(Clone, Copy, Debug)]
struct Round {
    unprobed: f64,
    idle: f64,
    delayed: f64,
}

/// The rounds for each function of the subject.
fn measure(tool: &Path, subject: &mut Subject, delay: u32, options: &Options) -> Result<Vec<Vec<Round>>> {
    let slice = Duration::from_millis(options.slice_ms);
    let mut rounds = vec![Vec::new(); subject.functions.len()];
    let mut before = subject.medians(slice)?;
    for _ in 0..options.rounds.max(1) {
        let idle = attached(tool, subject, 0, options)?;
        let delayed = attached(tool, subject, delay, options)?;
        let after = subject.medians(slice)?;
        let medians = before.iter().zip(&after).zip(idle.into_iter().zip(delayed));
        for (rounds, ((before, after), (idle, delayed))) in rounds.iter_mut().zip(medians) {
            rounds.push(Round { unprobed: f64::midpoint(*before, *after), idle, delayed });
        }
        before = after;
    }
    Ok(rounds)
}

/// The medians of a slice with the tool attached.
fn attached(tool: &Path, subject: &mut Subject, delay: u32, options: &Options) -> Result<Vec<f64>> {
    let is_delayed = delay > 0;
    let delay = format!("{delay}ns");
    let ours = ["--strict", "--engine", &options.engine, "--delay", &delay];
    let flags: Vec<&str> = ours.into_iter().chain(subject.flags.iter().copied()).collect();
    let attached = Attached::start_tool(tool, subject.service.pid(), &subject.targets(), &flags, |_| ())?;
    thread::sleep(SETTLE);
    let medians = subject.medians(Duration::from_millis(options.slice_ms))?;
    let ended = attached.stop()?;
    let targets = ended.report["targets"].as_array().context("the report has no targets")?;
    for (target, function) in targets.iter().zip(subject.functions) {
        let seen = if is_delayed { &target["delayed"] } else { &target["calls"] };
        if seen.as_u64() == Some(0) {
            bail!("{}: the tool saw no call of {}", subject.name, function.name);
        }
    }
    Ok(medians)
}

/// The result of the rounds. Times in ns, errors in %.
#[derive(Clone, Debug)]
struct Measured {
    requested: f64,
    unprobed: f64,
    trap: f64,
    lost: f64,
    error: f64,
    least: f64,
    most: f64,
}

impl Measured {
    fn new(requested: f64, rounds: &[Round]) -> Self {
        let over = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
        let error = |lost: f64| 100.0 * (lost - requested) / requested;
        let lost = over(&|round| round.delayed - round.unprobed);
        let errors = || rounds.iter().map(|round| error(round.delayed - round.unprobed));
        Self {
            requested,
            unprobed: over(&|round| round.unprobed),
            trap: over(&|round| round.idle - round.unprobed),
            lost,
            error: error(lost),
            least: errors().fold(f64::INFINITY, f64::min),
            most: errors().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    fn print(&self, function: &Function, site: &Site, verdict: Verdict) {
        let us = |ns: f64| ns / 1000.0;
        println!(
            "  {:<14} {:<16} {:>9.0} {:>8.3} {:>7.3} {:>8.3} {:>6.2} %  {:<15} {}",
            function.name,
            site.kind,
            us(self.requested),
            us(self.unprobed),
            us(self.trap),
            us(self.lost),
            self.error,
            format!("{:.2} … {:.2}", self.least, self.most),
            match verdict {
                Verdict::Kept => "kept".to_owned(),
                Verdict::Missed => "MISSED".to_owned(),
                Verdict::Clamped => format!("clamped: {:.1}", us(site.floor_ns)),
            }
        );
    }
}

/// Whether a promise is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Kept,
    Missed,
    /// The site cannot delay by so little, and the tool says so.
    Clamped,
}

impl Verdict {
    fn new(measured: &Measured, bound: f64, site: &Site) -> Self {
        if measured.requested < site.floor_ns {
            Self::Clamped
        } else if measured.error.abs() <= bound {
            Self::Kept
        } else {
            Self::Missed
        }
    }
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    f64::midpoint(lower, upper)
}

/// The first three numbers of /proc/loadavg.
pub(super) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(unprobed: f64, idle: f64, delayed: f64) -> Round {
        Round { unprobed, idle, delayed }
    }

    #[test]
    fn the_median_round_is_judged() {
        let rounds =
            [round(100.0, 700.0, 10_100.0), round(100.0, 700.0, 10_250.0), round(90.0, 600.0, 90_000.0)];
        let measured = Measured::new(10_000.0, &rounds);
        assert_eq!(measured.lost, 10_150.0);
        assert_eq!(measured.trap, 600.0);
        assert!((measured.error - 1.5).abs() < 1e-9);
        let site = |kind: &str, floor_ns| Site { kind: kind.into(), place: String::new(), floor_ns };
        let push = site("push", 700.0);
        assert_eq!(Verdict::new(&measured, 2.0, &push), Verdict::Kept);
        assert_eq!(Verdict::new(&measured, 1.0, &push), Verdict::Missed);
        let stepped = site("single step", 11_000.0);
        assert_eq!(Verdict::new(&measured, 1.0, &stepped), Verdict::Clamped);
    }
}
