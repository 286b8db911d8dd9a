//! `cargo xtask bench python`: what the tool costs Python programs whose functions it does not slow.
//!
//! Two processes run the same program in turns: one that the tool never touches, and one to which it attaches with
//! targets that nothing matches, and from which it then detaches. So a drift of the machine falls on both. A
//! program of nothing but calls is attached to as well with its function selected and a delay of 0: what a matched
//! call costs.

use std::{path::Path, process::ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{Form, pythons},
    session::Attached,
};

/// Programs of `programs.py` that do something.
const PROGRAMS: [&str; 3] = ["scheduler", "constraints", "text"];
/// The program that only calls a function, and how often a round of it does.
const CALLS: (&str, f64) = ("calls", 200_000.0);
/// Selects nothing, and has to be asked about every function.
const NOTHING: &str = "py:*/no_such_package/*:No.such_function\n";
/// Selects the one function of [`CALLS`].
const CALLED: &str = "py:*/programs.py:called\n";

#[derive(Args)]
pub(crate) struct Options {
    /// How often each program is measured in each state.
    #[arg(long, default_value_t = 7)]
    turns: usize,
    /// Rounds of a program each time.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Measure only Pythons whose description contains this, such as `3.12`.
    #[arg(long, default_value = "")]
    only: String,
    /// How calls become visible, as the tool's own flag has it.
    #[arg(long, default_value = "helper")]
    entry: String,
}

/// Prints a line for each Python and program.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    println!(
        "{} turns of {} rounds; times are lower quartiles of a round's; 1.000 is a process that was never attached to",
        options.turns, options.rounds
    );
    println!("{:<32} {:<12} {:>9} {:>22} {:>9}", "", "program", "round", "attached, no matches", "detached");
    for python in pythons() {
        let name = python.to_string();
        if python.form == Form::Container || !name.contains(&options.only) {
            continue;
        }
        for program in PROGRAMS {
            let mut pair = Pair::start(python, program)?;
            let (mut untouched, mut attached, mut detached) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..options.turns.max(1) {
                let session = pair.attach(tool, options, NOTHING)?;
                pair.take(options, &mut untouched, &mut attached)?;
                session.stop()?;
                pair.take(options, &mut untouched, &mut detached)?;
            }
            let base = lower_quartile(untouched);
            println!(
                "{name:<32} {program:<12} {:>6.2} ms {:>22.3} {:>9.3}",
                base / 1e6,
                lower_quartile(attached) / base,
                lower_quartile(detached) / base
            );
        }
        let (matched, counted) = matched_call(tool, options, python)?;
        println!(
            "{name:<32} a matched call that is not delayed costs {matched:.0} ns more ({counted} counted)"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// What a matched call costs, in ns, and how many calls the tool counted.
fn matched_call(tool: &Path, options: &Options, python: &PythonBuild) -> Result<(f64, u64)> {
    let mut pair = Pair::start(python, CALLS.0)?;
    let (mut untouched, mut attached, mut counted) = (Vec::new(), Vec::new(), 0);
    for _ in 0..options.turns.max(1) {
        let session = pair.attach(tool, options, CALLED)?;
        pair.take(options, &mut untouched, &mut attached)?;
        let report = session.stop()?.report;
        let calls = report["targets"][0]["calls"].as_u64().context("the report has no calls")?;
        ensure!(calls > 0, "{python}: the tool counted no call");
        counted += calls;
    }
    Ok(((lower_quartile(attached) - lower_quartile(untouched)) / CALLS.1, counted))
}

/// A process that is never touched and one that is, which run the same program in turns.
struct Pair {
    untouched: Service,
    touched: Service,
}

impl Pair {
    fn start(python: &PythonBuild, program: &str) -> Result<Self> {
        let script = places::root().join("xtask/src/bench/python/programs.py");
        let start = || {
            let mut command = python.command(&script);
            command.arg(program);
            Service::start(&mut command).with_context(|| format!("cannot start {program} on {python}"))
        };
        Ok(Self { untouched: start()?, touched: start()? })
    }

    fn attach(&self, tool: &Path, options: &Options, targets: &str) -> Result<Attached> {
        let flags = ["--delay", "0", "--entry", &options.entry];
        Attached::start_tool(tool, self.touched.pid(), targets, &flags, |_| ())
    }

    /// Has each run some rounds, one after the other, and takes down how long each round took, in ns.
    fn take(&mut self, options: &Options, untouched: &mut Vec<f64>, touched: &mut Vec<f64>) -> Result<()> {
        for (service, times) in [(&mut self.untouched, untouched), (&mut self.touched, touched)] {
            let answer = service.ask(&format!("rounds {}", options.rounds.max(1)))?;
            let taken = answer.iter().find_map(|event| event["taken_ns"].as_array());
            times.extend(
                taken
                    .context("the program did not say how long it took")?
                    .iter()
                    .filter_map(|time| time.as_f64()),
            );
        }
        Ok(())
    }
}

/// The time that three quarters of the rounds exceed: what a round takes where nothing disturbs it.
fn lower_quartile(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 4).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_rounds_is_quicker() {
        assert_eq!(lower_quartile((1..=100).rev().map(f64::from).collect()), 26.0);
        assert_eq!(lower_quartile(vec![7.0]), 7.0);
        assert!(lower_quartile(Vec::new()).is_nan());
    }
}
