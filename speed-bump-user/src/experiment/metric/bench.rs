//! A benchmark that runs once in each slice.

use std::{
    io,
    process::Stdio,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use regex_automata::meta::Regex;

use super::{Metric, Reading};
use crate::{
    experiment::{
        last_output::{LastOutput, last_lines},
        record::{By, Quantity},
        shell::{ShellCommand, wait_for},
        subject,
    },
    session::snapshot::Snapshot,
    sys::clock::now,
    units::Nanos,
};

/// A run may take this many times as long as the fastest.
const MAX: u32 = 10;
/// A run may always take this long.
const MIN_PATIENCE: Duration = Duration::from_secs(10);
/// How long the first run may take.
const FIRST_PATIENCE: Duration = Duration::from_secs(600);

/// The meaning of the number that a run prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// Work per second.
    PerSecond,
    /// The run's time, in units of this many ns.
    Time(Nanos),
}

/// A regular expression for the number in a run's output.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    text: String,
    captured: Captured,
}

/// Why a text is not such an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is not a regular expression.
    #[error("`{0}` is not a regular expression: {1}")]
    Regex(String, String),
    /// It does not have exactly one group.
    #[error("`{0}` must have one group, around the number: 'requests/sec: ([0-9.]+)'")]
    Groups(String),
}

impl Pattern {
    /// Parses an expression.
    ///
    /// # Errors
    /// It is not a regular expression with one group.
    pub(crate) fn parse(text: &str, captured: Captured) -> Result<Self, PatternError> {
        let regex = Regex::new(text).map_err(|error| {
            let why = error.syntax_error().map_or_else(|| error.to_string(), |error| error.to_string());
            // The library's message has several lines.
            let why = why.lines().last().unwrap_or_default().trim().to_owned();
            PatternError::Regex(text.to_owned(), why.trim_start_matches("error: ").to_owned())
        })?;
        if regex.captures_len() != 2 {
            return Err(PatternError::Groups(text.to_owned()));
        }
        Ok(Self { regex, text: text.to_owned(), captured })
    }

    /// Whether the number is the run's time.
    pub(crate) fn is_time(&self) -> bool {
        matches!(self.captured, Captured::Time(_))
    }

    /// The last number that it finds.
    fn number(&self, output: &str) -> Option<f64> {
        let found = self.regex.captures_iter(output).last()?;
        let number = output.get(found.get_group(1)?.range())?;
        number.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0)
    }
}

/// A benchmark as a metric.
#[derive(Debug)]
pub(crate) struct Bench {
    command: String,
    pattern: Option<Pattern>,
    running: Option<Running>,
    patience: Duration,
    done: Reading,
}

#[derive(Debug)]
struct Running {
    shell: ShellCommand,
    start: Nanos,
    ended: Arc<OnceLock<Nanos>>,
    output: LastOutput,
    errors: LastOutput,
}

impl Bench {
    /// A benchmark with this command. A run is a unit, or does the work that it prints.
    pub(crate) fn new(command: &str, pattern: Option<Pattern>) -> Self {
        Self {
            command: command.to_owned(),
            pattern,
            running: None,
            patience: FIRST_PATIENCE,
            done: Reading::default(),
        }
    }
}

impl Metric for Bench {
    fn unit(&self) -> Option<&'static str> {
        let prints_work = self.pattern.as_ref().is_some_and(|pattern| !pattern.is_time());
        Some(if prints_work { "unit that the benchmark counts" } else { "run of the benchmark" })
    }

    fn by(&self) -> By {
        let prints_time = self.pattern.as_ref().is_some_and(Pattern::is_time);
        if prints_time { By::Latency } else { By::Throughput }
    }

    fn has(&self, _: Quantity) -> bool {
        false
    }

    fn read(&mut self, _: &Snapshot) -> io::Result<Reading> {
        Ok(self.done.clone())
    }

    fn is_of_runs(&self) -> bool {
        true
    }

    fn begin_run(&mut self) -> io::Result<()> {
        self.running = None;
        let mut shell = ShellCommand::start(&self.command, Stdio::piped(), Stdio::piped())?;
        let start = now();
        let none = || io::Error::other("it has no output");
        let (output, errors) = (shell.take_output().ok_or_else(none)?, shell.take_errors().ok_or_else(none)?);
        let ended = Arc::new(OnceLock::new());
        let (tells, pid) = (Arc::clone(&ended), shell.pid().ok_or_else(none)?);
        thread::Builder::new().name("run".to_owned()).spawn(move || {
            wait_for(pid);
            let _ = tells.set(now());
        })?;
        let (output, errors) = (LastOutput::read(output)?, LastOutput::read(errors)?);
        self.running = Some(Running { shell, start, ended, output, errors });
        Ok(())
    }

    fn finished_run(&mut self) -> io::Result<Option<subject::Run>> {
        let Some(running) = &self.running else { return Err(io::Error::other("no run was started")) };
        let Some(end) = running.ended.get().copied() else {
            let took = Duration::from_nanos(now().0.saturating_sub(running.start.0));
            if took <= self.patience {
                return Ok(None);
            }
            self.running = None;
            let patience = Nanos::from(self.patience);
            return Err(io::Error::other(format!(
                "`{}` was ended after {patience}, because it takes much longer than before",
                self.command
            )));
        };
        let Some(Running { mut shell, start, output, errors, .. }) = self.running.take() else {
            return Ok(None);
        };
        let status = shell.end()?;
        let text = |said: LastOutput| String::from_utf8_lossy(&said.take()).into_owned();
        let (output, errors) = (text(output), text(errors));
        if !status.success() {
            let said = last_lines(if errors.trim().is_empty() { &output } else { &errors });
            return Err(io::Error::other(format!("`{}` failed ({status}): {said}", self.command)));
        }
        let took = end.0.saturating_sub(start.0).max(1) as f64;
        let usual = Duration::from_nanos(end.0.saturating_sub(start.0)).saturating_mul(MAX);
        self.patience = self.patience.min(usual.max(MIN_PATIENCE));
        let (units, latency) = match &self.pattern {
            None => (1.0, None),
            Some(pattern) => {
                let number = pattern.number(&output).ok_or_else(|| {
                    io::Error::other(format!(
                        "`{}` printed nothing in which `{}` finds a number above zero; it ended with: {}",
                        self.command,
                        pattern.text,
                        last_lines(&output)
                    ))
                })?;
                match pattern.captured {
                    Captured::PerSecond => (number * took / 1e9, None),
                    Captured::Time(unit) => (1.0, Some(number * unit.0 as f64)),
                }
            }
        };
        self.done.units += units;
        self.done.latency = latency.map(|latency| self.done.latency.unwrap_or_default() + latency);
        Ok(Some(subject::Run { start, end, units, latency }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Waits until a run has ended.
    fn run(bench: &mut Bench) -> io::Result<subject::Run> {
        bench.begin_run()?;
        loop {
            if let Some(run) = bench.finished_run()? {
                return Ok(run);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_run_is_a_unit_or_prints_its_work() {
        let found = run(&mut Bench::new("true", None)).unwrap();
        assert!(found.units == 1.0 && found.latency.is_none() && found.end > found.start, "{found:?}");
        let pattern = |captured| Pattern::parse("([0-9.]+) of it", captured).ok();
        let mut bench = Bench::new("echo 1 of it, 250 of it", pattern(Captured::PerSecond));
        let found = run(&mut bench).unwrap();
        let seconds = (found.end.0 - found.start.0) as f64 / 1e9;
        assert!((found.units / seconds / 250.0 - 1.0).abs() < 1e-9, "{found:?}");
        let mut bench = Bench::new("echo 2.5 of it", pattern(Captured::Time(Nanos(1_000_000))));
        assert_eq!(run(&mut bench).unwrap().latency, Some(2.5e6));
    }

    #[test]
    fn the_error_of_a_failed_run_has_its_output() {
        let error = |command, pattern| run(&mut Bench::new(command, pattern)).unwrap_err().to_string();
        let failed = error("echo no luck >&2; exit 4", None);
        assert_eq!(failed, "`echo no luck >&2; exit 4` failed (exit status: 4): no luck");
        let pattern = Pattern::parse("([0-9]+) of it", Captured::PerSecond).ok();
        let without = error("echo none of it", pattern);
        assert!(without.ends_with("it ended with: none of it"), "{without}");
    }

    #[test]
    fn a_run_that_takes_too_long_is_ended() {
        let mut bench = Bench::new("sleep 1000", None);
        bench.patience = Duration::ZERO;
        let error = run(&mut bench).unwrap_err().to_string();
        assert!(error.starts_with("`sleep 1000` was ended after 0ns"), "{error}");
    }

    #[test]
    fn a_daemon_that_a_run_leaves_behind_is_not_waited_for() {
        let command = "setsid sleep 60 & until grep -q sleep /proc/$!/comm; do :; done; echo $! is left";
        let pattern = Pattern::parse("([0-9]+) is left", Captured::Time(Nanos(1))).ok();
        let run = run(&mut Bench::new(command, pattern)).unwrap();
        let daemon = rustix::process::Pid::from_raw(run.latency.unwrap() as i32).unwrap();
        // The daemon still holds the pipe.
        rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn a_pattern_has_one_group() {
        let error = |text| Pattern::parse(text, Captured::PerSecond).unwrap_err();
        assert!(matches!(error("a"), PatternError::Groups(_)));
        assert!(matches!(error("(a)(b)"), PatternError::Groups(_)));
        assert!(matches!(error("(a"), PatternError::Regex(..)));
    }
}
