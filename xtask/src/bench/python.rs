//! `cargo xtask bench python`: what the tool costs Python programs whose functions it does not slow.
//!
//! Two processes run the same program in turns, a round each: one that the tool never touches, and one to
//! which it attaches, with targets that match nothing, and from which it then detaches. Only adjacent rounds
//! are compared, so a drift of the machine, or a busy moment, affects both. The rounds before the first
//! attach show how much the two differ by themselves. One program makes nothing but calls: the tool also
//! attaches to it with its function selected and a delay of 0, which gives the cost of a matched call.
//!
//! On a busy machine, run all of it on one processor, before everything else: `taskset -c 1 chrt -f 1`.

use std::{path::Path, process::ExitCode, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{self, Form},
    session::Attached,
};

use super::neighbours::{Busy, Neighbours};

/// Programs of `programs.py` that do some work.
const PROGRAMS: [&str; 3] = ["scheduler", "constraints", "text"];
/// The program that only calls a function, and the number of calls in a round.
const CALLS: (&str, f64) = ("calls", 200_000.0);
/// Selects nothing, and must be tried for every function.
const NOTHING: &str = "py:*/no_such_package/*:No.such_function\n";
/// Selects the one function of [`CALLS`], and the one that calls it.
const CALLED: &str = "py:*/programs.py:calls\npy:*/programs.py:called\n";
/// Options for matched calls, and their names: each line costs more than the one before.
const ASKED: [(&[&str], &str); 3] = [
    (&[], "a matched call that is not delayed"),
    (&["--times"], "the same with --times"),
    (&["--times", "--callers"], "the same with --times --callers"),
];

#[derive(Args)]
pub(crate) struct Options {
    /// How often we measure each program in each state.
    #[arg(long, default_value_t = 7)]
    turns: usize,
    /// Rounds of a program each time.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Measure only Pythons whose description contains this, such as `3.12`.
    #[arg(long, default_value = "")]
    only: String,
    /// How calls become visible, as the tool's own flag has it.
    #[arg(long, default_value = "helper")]
    entry: String,
    #[command(flatten)]
    busy: Busy,
}

/// The pause after attaching and detaching: work that the tool and the kernel still do then takes processor
/// time from both programs, perhaps unequally.
const SETTLING: Duration = Duration::from_millis(200);

/// Prints a line for each Python and program.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    let _neighbours = Neighbours::start(options.busy)?;
    println!(
        "{} turns of {} rounds, in processor time; a round of the process that is attached to, divided by \
         one of another process\nthat never is: medians and their standard errors",
        options.turns, options.rounds
    );
    println!(
        "{:<32} {:<12} {:>9} {:>15} {:>21} {:>15}",
        "", "program", "round", "before", "attached, no matches", "detached"
    );
    for python in pythons::find()? {
        let name = python.to_string();
        if python.form == Form::Container || !name.contains(&options.only) {
            continue;
        }
        for program in PROGRAMS {
            let mut pair = Pair::start(python, program)?;
            let (mut before, mut attached, mut detached) = (Rounds::new(), Rounds::new(), Rounds::new());
            for _ in 0..options.turns.max(1) {
                before.extend(pair.take(options)?);
            }
            for _ in 0..options.turns.max(1) {
                let session = pair.attach(tool, options, NOTHING, &[])?;
                attached.extend(pair.take(options)?);
                session.stop()?;
                thread::sleep(SETTLING);
                detached.extend(pair.take(options)?);
            }
            println!(
                "{name:<32} {program:<12} {:>6.2} ms {:>15} {:>21} {:>15}",
                Spread::new(before.iter().map(|round| round.untouched)).median / 1e6,
                ratio(&before),
                ratio(&attached),
                ratio(&detached)
            );
        }
        // Only the helper times calls.
        let asked = if options.entry == "helper" { &ASKED[..] } else { &ASKED[..1] };
        for (flags, what) in asked {
            let (matched, counted) = matched_call(tool, options, python, flags)?;
            println!("{name:<32} {what} costs {matched} ns more ({counted} counted)");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The cost of a matched call, in ns, and how many calls the tool counted.
fn matched_call(
    tool: &Path,
    options: &Options,
    python: &PythonBuild,
    flags: &[&str],
) -> Result<(String, u64)> {
    let mut pair = Pair::start(python, CALLS.0)?;
    let (mut attached, mut counted) = (Rounds::new(), 0);
    for _ in 0..options.turns.max(1) {
        let session = pair.attach(tool, options, CALLED, flags)?;
        attached.extend(pair.take(options)?);
        let report = session.stop()?.report;
        let calls = report["targets"][1]["calls"].as_u64().context("the report has no calls")?;
        ensure!(calls > 0, "{python}: the tool counted no call");
        counted += calls;
    }
    let more = Spread::new(attached.iter().map(|round| (round.touched - round.untouched) / CALLS.1));
    Ok((format!("{:.0} ±{:.0}", more.median, more.error), counted))
}

/// A process that the tool never touches and one that it does, which run the same program in turns.
struct Pair {
    untouched: Service,
    touched: Service,
}

/// The time of a round in each process, in ns of processor time.
#[derive(Clone, Copy, Debug)]
struct Round {
    untouched: f64,
    touched: f64,
}

type Rounds = Vec<Round>;

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

    fn attach(&self, tool: &Path, options: &Options, targets: &str, more: &[&str]) -> Result<Attached> {
        let mut flags = vec!["--delay", "0", "--entry", &options.entry];
        flags.extend(more);
        let attached = Attached::start_tool(tool, self.touched.pid(), targets, &flags, |_| ())?;
        thread::sleep(SETTLING);
        Ok(attached)
    }

    /// Lets each run some rounds, in turns. They take turns to go first, since the first finds the caches
    /// colder.
    fn take(&mut self, options: &Options) -> Result<Rounds> {
        let mut rounds = Rounds::new();
        for number in 0..options.rounds.max(1) {
            rounds.push(if number % 2 == 0 {
                let untouched = round(&mut self.untouched)?;
                Round { untouched, touched: round(&mut self.touched)? }
            } else {
                let touched = round(&mut self.touched)?;
                Round { untouched: round(&mut self.untouched)?, touched }
            });
        }
        Ok(rounds)
    }
}

fn round(service: &mut Service) -> Result<f64> {
    let answer = service.ask("round")?;
    let taken = answer.iter().find_map(|event| event["taken_ns"].as_f64());
    taken.context("the program did not say how long it took")
}

/// How much longer a round takes in the touched process, for display.
fn ratio(rounds: &Rounds) -> String {
    let spread = Spread::new(rounds.iter().map(|round| round.touched / round.untouched));
    format!("{:.3} ±{:.3}", spread.median, spread.error)
}

/// A median and its standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) error: f64,
}

impl Spread {
    pub(super) fn new(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let quarter = |number: usize| values.get(values.len() * number / 4).copied().unwrap_or(f64::NAN);
        // For normal errors: the quartiles are 1.349 standard deviations apart, and the median's error is
        // 1.253 times the mean's. Quartiles, since a busy machine adds outliers.
        let deviation = (quarter(3) - quarter(1)) / 1.349;
        Self { median: quarter(2), error: 1.253 * deviation / (values.len() as f64).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_that_are_far_out_change_nothing() {
        let mut values: Vec<_> = (1..=99).rev().map(f64::from).collect();
        let quiet = Spread::new(values.iter().copied());
        assert_eq!(quiet.median, 50.0);
        assert!((4.0..5.0).contains(&quiet.error), "{}", quiet.error);
        values[0] = 1e9;
        assert_eq!(Spread::new(values.into_iter()).median, quiet.median);
        assert_eq!(Spread::new([7.0].into_iter()).error, 0.0);
        assert!(Spread::new(std::iter::empty()).median.is_nan());
    }

    #[test]
    fn a_ratio_is_of_neighbours() {
        let rounds = [1.0, 100.0, 10.0].map(|untouched| Round { untouched, touched: 2.0 * untouched });
        assert_eq!(ratio(&rounds.to_vec()), "2.000 ±0.000");
    }
}
