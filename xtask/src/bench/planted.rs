//! `cargo xtask bench planted`: what `sweep` finds in services for which the truth is known.
//!
//! The services are those of the tests (tests/fixtures/planted.py), which assert verdicts. This bench prints
//! the numbers: sensitivity beside the truth, slack, and how far two sweeps of one service agree.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;
use speed_bump_testing::{Service, places, pythons, pythons::Form};

use super::timed;

#[derive(Args)]
pub(crate) struct Options {
    /// Sweeps of each service.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Seconds of a sweep.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Sweep only the services whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// A service, and the truth about it.
struct Planted {
    kind: &'static str,
    /// Whether clients ask again as soon as they have an answer, which is not visible from outside.
    closed_loop: bool,
    /// Functions, with the lowest and the highest true sensitivity.
    truth: &'static [(&'static str, f64, f64)],
}

const fn planted(kind: &'static str, truth: &'static [(&'static str, f64, f64)]) -> Planted {
    Planted { kind, closed_loop: false, truth }
}

const SERVICES: &[Planted] = &[
    planted("shadow", &[("render", 1.0, 1.0), ("score", 0.0, 0.0)]),
    planted("asyncio", &[("render", 1.0, 1.0), ("score", 0.0, 0.0)]),
    planted("pipeline", &[("consume", 1.0, 1.0), ("produce", 0.0, 0.0)]),
    planted("pool", &[("inside", 1.0, 1.1), ("outside", 0.0, 0.0)]),
    planted("gil", &[("compute", 1.0, 1.0)]),
    // The other thread has the GIL once in 7 ms of `crunch`, for 0.3 ms.
    planted("background", &[("crunch", 1.0, 1.05), ("tick", 1.0, 1.05)]),
    planted("forked", &[("render", 1.0, 1.0), ("tick", 0.0, 0.0)]),
    Planted { closed_loop: true, ..planted("accelerator", &[("launch", 0.0, 0.0)]) },
    Planted { closed_loop: true, ..planted("nothing", &[("score", 0.0, 0.0), ("load", 0.0, 0.0)]) },
];

/// The verdicts in all.
#[derive(Default)]
struct Tally {
    verdicts: usize,
    right: usize,
    undecided: usize,
    intervals: usize,
    hold: usize,
    pairs: usize,
    agree: usize,
}

/// Prints a line for each function of each sweep.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    let python = pythons::find()?.iter().rfind(|python| python.form != Form::Container);
    let python = python.context("this machine has no Python 3.8 or newer that is in no container")?;
    let script = places::fixtures().join("planted.py");
    println!("sweeps of {} s, {} of each service; {python}", options.seconds, options.rounds);
    println!(
        "{:<12}{:<10}{:>12}{:>24}{:>12}  verdict",
        "service", "function", "truth", "sensitivity", "slack, ms"
    );
    let mut tally = Tally::default();
    for planted in SERVICES.iter().filter(|planted| planted.kind.contains(&options.only)) {
        let mut earlier: Option<BTreeMap<&str, String>> = None;
        for _ in 0..options.rounds {
            let service = Service::start(python.command(&script).arg(planted.kind))?;
            let found = sweep(tool, planted, service.pid(), options.seconds)?;
            let mut verdicts = BTreeMap::new();
            for (name, least, most) in planted.truth {
                let factors = found["factors"].as_array().context("a sweep without factors")?;
                let factor = factors.iter().find(|factor| factor["name"] == *name);
                let factor = factor.with_context(|| format!("{name} of {} is not there", planted.kind))?;
                line(planted.kind, name, (*least, *most), factor);
                verdicts.insert(*name, tally.add((*least, *most), factor));
            }
            if let Some(earlier) = &earlier {
                tally.pairs += verdicts.len();
                tally.agree += verdicts.iter().filter(|(name, of)| earlier.get(*name) == Some(of)).count();
            }
            earlier = Some(verdicts);
        }
    }
    let Tally { verdicts, right, undecided, intervals, hold, pairs, agree } = tally;
    println!(
        "verdicts: {right} of {verdicts} right, {undecided} undecided; truth within {hold} of {intervals} \
         intervals of 95 %; two sweeps in turn agree on {agree} of {pairs} verdicts"
    );
    Ok(ExitCode::SUCCESS)
}

fn sweep(tool: &Path, planted: &Planted, pid: i32, seconds: u64) -> Result<Value> {
    let mut command = Command::new(tool);
    command.args(["sweep", "--quiet", "--pid", &pid.to_string(), "--json", "-"]);
    command.args(["--for", &format!("{seconds}s"), "--progress", "*/planted.py:unit"]);
    for (name, ..) in planted.truth {
        command.args(["-t", &format!("*/planted.py:{name}")]);
    }
    if planted.closed_loop {
        command.arg("--closed-loop");
    }
    serde_json::from_str(&timed(&mut command)?.0).context("a sweep printed no JSON")
}

fn line(kind: &str, name: &str, (least, most): (f64, f64), factor: &Value) {
    let truth = if least < most { format!("{least} to {most}") } else { least.to_string() };
    let number = |key: &str| factor[key].as_f64();
    let sensitivity = match (number("sensitivity"), number("low"), number("high")) {
        (Some(found), Some(low), Some(high)) => format!("{found:.2} [{low:.2}, {high:.2}]"),
        (_, _, Some(high)) => format!("< {high:.2}"),
        _ => "-".to_owned(),
    };
    let slack = number("slack_ns").map_or("-".to_owned(), |slack| format!("{:.2}", slack / 1e6));
    let verdict = factor["verdict"].as_str().unwrap_or("-");
    println!("{kind:<12}{name:<10}{truth:>12}{sensitivity:>24}{slack:>12}  {verdict}");
}

impl Tally {
    /// Adds a function's verdict, and returns it in words.
    fn add(&mut self, (least, most): (f64, f64), factor: &Value) -> String {
        let verdict = factor["verdict"].as_str().unwrap_or_default().to_owned();
        self.verdicts += 1;
        self.undecided += usize::from(verdict == "undecided");
        self.right += usize::from(verdict == if most > 0.0 { "matters" } else { "does-not-matter" });
        if let Some((low, high)) = factor["low"].as_f64().zip(factor["high"].as_f64()) {
            self.intervals += 1;
            self.hold += usize::from(low <= most && least <= high);
        }
        verdict
    }
}
