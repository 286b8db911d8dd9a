//! `cargo xtask bench profile`: whether own times and calls of `--times` are those of cProfile.
//!
//! Both watch the same calls, in the same process, so a slow moment of the processor affects both.

use std::{
    collections::HashMap,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{self, Form},
    session::Attached,
};

/// Programs of `corpus.py`.
const PROGRAMS: [&str; 6] = ["calls", "recursion", "generators", "coroutines", "exceptions", "c_functions"];
/// All functions, named as in cProfile.
const ALL: &str = "py:*:*\n";
/// The promise for own times: they differ by at most this share.
const BOUND: f64 = 0.05;
/// Functions count that have at least this share of a program's own time.
const SHARE: f64 = 0.01;

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds of a program under `--times` and cProfile.
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// Measure only Pythons whose description contains this, such as `3.12`.
    #[arg(long, default_value = "")]
    only: String,
}

/// A function, as both `--times` and cProfile name it: its unqualified name, and its line.
type Key = (String, u64);

/// Its calls, and its own time in ns.
type Profile = HashMap<Key, (u64, f64)>;

/// Prints a line for each Python and program.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    println!(
        "{} rounds; own time by --times, divided by that of cProfile: of the program, and of the functions \
         with 1 % of it\nor more the least and the greatest",
        options.rounds
    );
    println!(
        "{:<32} {:<12} {:>9} {:>8} {:>16} {:>9} {:>18}",
        "", "program", "functions", "program", "functions", "verdict", "calls"
    );
    let mut missed = 0;
    for python in pythons::find()? {
        let name = python.to_string();
        if python.form == Form::Container || !name.contains(&options.only) {
            continue;
        }
        for program in PROGRAMS {
            let compared = compare(tool, options, python, program)?;
            println!("{name:<32} {program:<12} {compared}");
            missed += usize::from(!compared.is_kept());
        }
    }
    println!("bounds missed: {missed}");
    Ok(ExitCode::SUCCESS)
}

/// Two profiles of the same calls.
#[derive(Debug)]
struct Compared {
    /// Our time divided by theirs, for functions that count.
    ratios: Vec<f64>,
    all: f64,
    /// Functions for which both have the same number of calls, and all functions.
    calls: (usize, usize),
}

impl Compared {
    fn new(ours: &Profile, theirs: &Profile) -> Result<Self> {
        let sum = |profile: &Profile| profile.values().map(|(_, own)| own).sum::<f64>();
        let (our_sum, their_sum) = (sum(ours), sum(theirs));
        ensure!(their_sum > 0.0 && our_sum > 0.0, "no function of the program was profiled");
        let mut compared = Self { ratios: Vec::new(), all: our_sum / their_sum, calls: (0, theirs.len()) };
        for (key, (calls, own)) in theirs {
            let (our_calls, our_own) = ours.get(key).copied().unwrap_or_default();
            compared.calls.0 += usize::from(our_calls == *calls);
            if *own >= SHARE * their_sum {
                compared.ratios.push(our_own / own);
            }
        }
        compared.ratios.sort_by(f64::total_cmp);
        Ok(compared)
    }

    fn is_kept(&self) -> bool {
        let is_near = |ratio: &f64| (ratio - 1.0).abs() <= BOUND;
        self.ratios.iter().all(is_near) && self.calls.0 == self.calls.1
    }
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ends = self.ratios.first().zip(self.ratios.last());
        let range = ends.map(|(least, greatest)| format!("{least:.3} … {greatest:.3}")).unwrap_or_default();
        let calls = match self.calls {
            (same, all) if same == all => "the same".to_owned(),
            (same, all) => format!("{same} of {all} the same"),
        };
        let verdict = if self.is_kept() { "kept" } else { "MISSED" };
        write!(f, "{:>9} {:>8.3} {range:>16} {verdict:>9} {calls:>18}", self.ratios.len(), self.all)
    }
}

/// Runs a program under `--times` and cProfile.
fn compare(tool: &Path, options: &Options, python: &PythonBuild, program: &str) -> Result<Compared> {
    let mut command: Command = python.command(&places::root().join("xtask/src/bench/profile/corpus.py"));
    let mut service = Service::start(&mut command).with_context(|| format!("cannot start {program}"))?;
    let flags = ["--delay", "0", "--times"];
    let session = Attached::start_tool(tool, service.pid(), ALL, &flags, |_| ())?;
    let answer = service.ask(&format!("profile {program} {}", options.rounds))?;
    let report = session.stop()?.report;
    let functions = report["targets"][0]["functions"].as_array().context("the report has no functions")?;
    let of_corpus = |of: &&Value| of["file"].as_str().is_some_and(|file| file.ends_with("profile/corpus.py"));
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let key = |of: &Value| {
        let name = of["name"].as_str().unwrap_or_default();
        let short = name.rsplit('.').next().unwrap_or(name).to_owned();
        (short, of["line"].as_u64().unwrap_or(0))
    };
    let calls = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
    let ours = functions
        .iter()
        .filter(of_corpus)
        .map(|of| (key(of), (calls(of, "calls") + calls(of, "resumed"), number(&of["own_ns"]))));
    let theirs = answer
        .iter()
        .filter(|event| event["event"] == "function")
        .map(|of| (key(of), (calls(of, "calls"), number(&of["own_ns"]))));
    let theirs: Profile = theirs.collect();
    // cProfile's time outside of its functions belongs to the program's frame.
    let ours: Profile = ours.filter(|(key, _)| theirs.contains_key(key)).collect();
    Compared::new(&ours, &theirs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn profile(functions: &[(&str, u64, f64)]) -> Profile {
        functions.iter().map(|(name, calls, own)| (((*name).to_owned(), 1), (*calls, *own))).collect()
    }

    #[test]
    fn functions_that_count_have_to_be_near() {
        let theirs = profile(&[("f", 5, 1_000.0), ("g", 2, 500.0), ("short", 1, 1.0)]);
        let near = Compared::new(&profile(&[("f", 5, 1_040.0), ("g", 2, 490.0), ("short", 1, 9.0)]), &theirs);
        let near = near.unwrap();
        assert!(near.is_kept() && near.ratios == [0.98, 1.04], "{near:?}");
        let far = Compared::new(&profile(&[("f", 5, 1_060.0), ("g", 2, 500.0), ("short", 1, 1.0)]), &theirs);
        assert!(!far.unwrap().is_kept());
        let missing = Compared::new(&profile(&[("f", 5, 1_000.0), ("g", 2, 500.0)]), &theirs).unwrap();
        assert!(!missing.is_kept() && missing.calls == (2, 3), "{missing:?}");
        assert!(Compared::new(&profile(&[]), &theirs).is_err());
    }
}
