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

use super::{
    neighbours::{Busy, Neighbours},
    quantile, timed,
};

/// The verdicts that are right or wrong.
const DECIDED: [&str; 2] = ["matters", "does-not-matter"];

#[derive(Args)]
pub(crate) struct Options {
    /// Sweeps of each service.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Seconds that a sweep may take.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Sweep only the services whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    busy: Busy,
}

/// A service, and the truth about it.
struct Planted {
    kind: &'static str,
    /// Options that say what the unit is, and what its clients do.
    options: &'static [&'static str],
    /// Whether targets name the functions. If not, the sweep finds them by itself.
    is_named: bool,
    /// Functions, with the lowest and the highest true sensitivity.
    truth: &'static [(&'static str, f64, f64)],
}

const UNIT: &[&str] = &["--progress", "*/planted.py:unit"];
const CLOSED_LOOP: &[&str] = &["--progress", "*/planted.py:unit", "--closed-loop"];
const LATENCY: &[&str] = &["--latency", "*/planted.py:request"];

const fn planted(kind: &'static str, truth: &'static [(&'static str, f64, f64)]) -> Planted {
    Planted { kind, options: UNIT, is_named: true, truth }
}

/// One whose unit and functions the sweep finds by itself.
const fn unnamed(kind: &'static str, truth: &'static [(&'static str, f64, f64)]) -> Planted {
    Planted { kind, options: &[], is_named: false, truth }
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
    Planted { options: CLOSED_LOOP, ..planted("accelerator", &[("launch", 0.0, 0.0)]) },
    Planted { options: CLOSED_LOOP, ..planted("nothing", &[("score", 0.0, 0.0), ("load", 0.0, 0.0)]) },
    Planted { options: LATENCY, ..planted("open", &[("work", 1.0, 1.0), ("log", 0.0, 0.0)]) },
    unnamed("http", &[("render", 1.0, 1.0), ("score", 0.0, 0.0)]),
    unnamed("encoded", &[("to_json", 1.0, 1.0)]),
    unnamed("training", &[("backward", 1.0, 1.0), ("load", 0.0, 0.0)]),
    unnamed("batch", &[("crunch_rows", 1.0, 1.0), ("prepare", 1.0, 1.0)]),
    unnamed("decoder", &[("forward", 1.0, 1.0), ("sample", 1.0, 1.0)]),
];

/// The verdicts in all.
#[derive(Default)]
struct Tally {
    verdicts: usize,
    right: usize,
    wrong: usize,
    undecided: usize,
    intervals: usize,
    hold: usize,
    pairs: usize,
    agree: usize,
    /// The time of each command, in s.
    times: Vec<f64>,
    /// The times of those after which all functions were decided.
    whole: Vec<f64>,
}

/// Prints a line for each function of each sweep.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    let python = pythons::find()?.iter().rfind(|python| python.form != Form::Container);
    let python = python.context("this machine has no Python 3.8 or newer that is in no container")?;
    let script = places::fixtures().join("planted.py");
    let Options { rounds, seconds, .. } = options;
    println!("sweeps of {seconds} s, {rounds} of each service; {python}");
    let _neighbours = Neighbours::start(options.busy)?;
    println!(
        "{:<12}{:<12}{:>12}{:>24}{:>12}  verdict",
        "service", "function", "truth", "sensitivity", "slack, ms"
    );
    let mut tally = Tally::default();
    for planted in SERVICES.iter().filter(|planted| planted.kind.contains(&options.only)) {
        let mut earlier: Option<BTreeMap<&str, String>> = None;
        for _ in 0..*rounds {
            let service = Service::start(python.command(&script).arg(planted.kind))?;
            let (found, took) = sweep(tool, planted, service.pid(), *seconds)?;
            println!("{:<12}{:.1} s: {}", planted.kind, took, found["verdict"]);
            let factors = found["factors"].as_array().context("a sweep without factors")?;
            let mut verdicts = BTreeMap::new();
            for (name, least, most) in planted.truth {
                let factor = factors.iter().find(|factor| factor["name"] == *name).unwrap_or(&Value::Null);
                line(planted.kind, name, (*least, *most), factor);
                verdicts.insert(*name, tally.add((*least, *most), factor));
            }
            tally.times.push(took);
            if verdicts.values().all(|verdict| DECIDED.contains(&verdict.as_str())) {
                tally.whole.push(took);
            }
            if let Some(earlier) = &earlier {
                tally.pairs += verdicts.len();
                tally.agree += verdicts.iter().filter(|(name, of)| earlier.get(*name) == Some(of)).count();
            }
            earlier = Some(verdicts);
        }
    }
    tally.print();
    Ok(ExitCode::SUCCESS)
}

fn sweep(tool: &Path, planted: &Planted, pid: i32, seconds: u64) -> Result<(Value, f64)> {
    let mut command = Command::new(tool);
    command.args(["sweep", "--quiet", "--pid", &pid.to_string(), "--json", "-"]);
    command.args(["--for", &format!("{seconds}s")]).args(planted.options);
    if planted.is_named {
        for (name, ..) in planted.truth {
            command.args(["-t", &format!("*/planted.py:{name}")]);
        }
    }
    let (printed, took) = timed(&mut command)?;
    Ok((serde_json::from_str(&printed).context("a sweep printed no JSON")?, took.as_secs_f64()))
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
    println!("{kind:<12}{name:<12}{truth:>12}{sensitivity:>24}{slack:>12}  {verdict}");
}

impl Tally {
    /// Adds a function's verdict, and returns it in words.
    fn add(&mut self, (least, most): (f64, f64), factor: &Value) -> String {
        // A function that the sweep dismissed, or did not ask about, is not decided either.
        let verdict = factor["verdict"].as_str().unwrap_or_default().to_owned();
        self.verdicts += 1;
        let [matters, does_not] = DECIDED;
        let truth = if most > 0.0 { matters } else { does_not };
        match verdict.as_str() {
            found if found == truth => self.right += 1,
            found if DECIDED.contains(&found) => self.wrong += 1,
            _ => self.undecided += 1,
        }
        if let Some((low, high)) = factor["low"].as_f64().zip(factor["high"].as_f64()) {
            self.intervals += 1;
            self.hold += usize::from(low <= most && least <= high);
        }
        verdict
    }

    fn print(&self) {
        let Self { verdicts, right, wrong, undecided, intervals, hold, pairs, agree, .. } = self;
        println!(
            "verdicts: {right} of {verdicts} right, {wrong} wrong, {undecided} undecided; truth within \
             {hold} of {intervals} intervals of 95 %; two sweeps in turn agree on {agree} of {pairs} verdicts"
        );
        let sweeps = self.times.len();
        println!("{sweeps} sweeps took {}", quantiles(&self.times));
        println!("in {} of them all was decided, after {}", self.whole.len(), quantiles(&self.whole));
    }
}

/// `28 s at the median and 61 s at 90 %`.
fn quantiles(times: &[f64]) -> String {
    let [median, most] = [0.5, 0.9].map(|share| quantile(times.to_vec(), share));
    format!("{median:.0} s at the median and {most:.0} s at 90 %")
}
