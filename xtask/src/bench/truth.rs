//! `cargo xtask bench truth`: is a delay like a slower function?
//!
//! The programs have a function that can really be made slower: by work of a known length, which uses no
//! clock and takes processor time. Beside it is the same function for the tool to slow. A word in a file that
//! the program maps selects which of the two a request calls. So both are compared in one process under the
//! same load, slice by slice in turns, and a drift of the machine affects both. PostgreSQL has no such pair:
//! there its own hook slows `ExecutorRun`, and the tool has its probe there only in its own slices.
//!
//! The result is injected divided by real: for the throughput, and for the median and the 99th percentile of
//! the duration of a request, each the median over the rounds with its standard error.

mod load;
mod postgres;
mod server;
mod words;

use std::{
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::{Value, json};
use speed_bump_testing::Agent;

use super::{
    neighbours::{Busy, Neighbours},
    python::Spread,
};

/// By how much injected may differ from real, in %.
const GOAL: f64 = 3.0;

#[derive(Args)]
pub(crate) struct Options {
    /// Pairs of slices, one with the function really slower and one with it delayed.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Milliseconds of a slice.
    #[arg(long, default_value_t = 250)]
    slice_ms: u64,
    /// Measure only programs whose name contains this: `C server`, `thread pool`, `asyncio`, `PostgreSQL`.
    #[arg(long, default_value = "")]
    only: String,
    /// Measure only these engines.
    #[arg(long, value_delimiter = ',')]
    engine: Vec<String>,
    /// Numbers of clients, in place of the usual ones.
    #[arg(long, value_delimiter = ',')]
    clients: Vec<usize>,
    /// Delays in us, in place of the usual ones.
    #[arg(long, value_delimiter = ',')]
    delay_us: Vec<u64>,
    #[command(flatten)]
    busy: Busy,
}

impl Options {
    /// The wanted ones of these engines.
    fn engines(&self, all: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
        all.iter().copied().filter(|name| self.engine.is_empty() || self.engine.iter().any(|e| e == name))
    }

    fn clients(&self, usual: &[usize]) -> Vec<usize> {
        if self.clients.is_empty() { usual.to_vec() } else { self.clients.clone() }
    }

    fn delays_us(&self, usual: &[u64]) -> Vec<u64> {
        if self.delay_us.is_empty() { usual.to_vec() } else { self.delay_us.clone() }
    }
}

/// Prints a line for each program, engine, number of clients and delay.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    println!(
        "injected / real: {} rounds of 2 slices of {} ms; off by more than {GOAL} %: !",
        options.rounds, options.slice_ms
    );
    let _neighbours = Neighbours::start(options.busy)?;
    println!(
        "{:<24} {:<7} {:>7} {:>8} {:>9} {:>9}  {:>14} {:>14} {:>14}",
        "", "engine", "clients", "delay", "as it is", "real", "throughput", "p50", "p99"
    );
    server::run(tool, options)?;
    postgres::run(tool, options)?;
    Ok(ExitCode::SUCCESS)
}

/// What a slice of a load measured.
#[derive(Clone, Copy, Debug)]
struct Slice {
    /// Answered requests per second.
    per_second: f64,
    /// Durations of requests, in ns.
    p50_ns: f64,
    p99_ns: f64,
}

/// A real slice and an injected one beside it.
#[derive(Clone, Copy, Debug)]
struct Pair {
    real: Slice,
    injected: Slice,
}

/// One measurement: a line of the table.
struct Cell<'a> {
    program: &'a str,
    engine: &'a str,
    clients: usize,
    delay_us: u64,
}

impl Cell<'_> {
    fn print(&self, as_it_is: Slice, pairs: &[Pair]) {
        let real = Spread::new(pairs.iter().map(|pair| pair.real.per_second)).median;
        let ratio = |of: fn(&Slice) -> f64| {
            let spread = Spread::new(pairs.iter().map(|pair| of(&pair.injected) / of(&pair.real)));
            format!("{:.3} ±{:.3}{}", spread.median, spread.error, verdict(spread.median))
        };
        println!(
            "{:<24} {:<7} {:>7} {:>5} us {:>7.0}/s {:>7.0}/s  {:>14} {:>14} {:>14}",
            self.program,
            self.engine,
            self.clients,
            self.delay_us,
            as_it_is.per_second,
            real,
            ratio(|slice| slice.per_second),
            ratio(|slice| slice.p50_ns),
            ratio(|slice| slice.p99_ns),
        );
    }
}

/// A mark where the ratio misses the goal.
fn verdict(ratio: f64) -> &'static str {
    if (ratio - 1.0).abs() * 100.0 <= GOAL { "  " } else { " !" }
}

/// A session with one target, driven by the tool's agent.
struct Session {
    agent: Agent,
    line: String,
    target: u64,
}

impl Session {
    /// Attaches to `line` in a process; nothing is delayed yet.
    fn start(tool: &Path, pid: i32, line: &str, engine: &str) -> Result<Self> {
        let mut agent = Agent::start_as(&mut Command::new(tool))?;
        agent.ask(&json!({
            "do": "prepare", "pids": [pid], "targets": [line], "engine": engine, "delay_ns": 1_000_000,
            "strict": true
        }))?;
        agent.ask(&json!({"do": "start"}))?;
        Ok(Self { agent, line: line.to_owned(), target: 0 })
    }

    fn set(&mut self, delay_us: u64) -> Result<()> {
        let dose = json!({"target": self.target, "delay_ns": delay_us * 1000});
        self.agent.ask(&json!({"do": "set", "doses": [dose]})).map(drop)
    }

    /// Removes the probes.
    fn drop_target(&mut self) -> Result<()> {
        self.agent.ask(&json!({"do": "change-targets", "drop": [self.target]})).map(drop)
    }

    /// Attaches to the target again.
    fn add_target(&mut self) -> Result<()> {
        let added = self.agent.ask(&json!({"do": "change-targets", "add": [self.line]}))?;
        self.target = added["targets"][0].as_u64().with_context(|| format!("no number in {added}"))?;
        Ok(())
    }

    /// Detaches. Returns the session's counters.
    fn stop(mut self) -> Result<Value> {
        Ok(self.agent.ask(&json!({"do": "stop"}))?["report"].take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_by_more_than_the_goal_is_marked() {
        assert_eq!(
            [0.96, 0.975, 1.0, 1.029, 1.031].map(|ratio| verdict(ratio).trim()),
            ["!", "", "", "", "!"]
        );
    }
}
