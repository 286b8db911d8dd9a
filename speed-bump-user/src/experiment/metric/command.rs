//! A metric from a command that prints a number a line: the present value of a counter or gauge.

use std::{
    io::{self, BufRead, BufReader, Read as _},
    process::Stdio,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::{Metric, OpenError, Reading, is_countable, level::Level};
use crate::{experiment::shell::ShellCommand, session::snapshot::Snapshot, sys::clock::now, units::Nanos};

/// The longest line.
const LONGEST_LINE: usize = 128;
/// How long to wait for the first number, and at least for each later one.
const PATIENCE: Duration = Duration::from_secs(5);
/// A later number may take this many times the longest time between two numbers.
const MAX: u64 = 10;

/// The numbers of a command, which runs while the metric counts.
#[derive(Debug)]
pub(crate) struct PrintedNumbers {
    command: String,
    is_gauge: bool,
    running: Option<Numbers>,
}

impl PrintedNumbers {
    /// The value of a counter, or of a gauge.
    pub(crate) fn new(command: &str, is_gauge: bool) -> Self {
        Self { command: command.to_owned(), is_gauge, running: None }
    }
}

impl Metric for PrintedNumbers {
    fn unit(&self) -> Option<&'static str> {
        (!self.is_gauge).then_some("unit that the command counts")
    }

    fn open(&mut self) -> Result<(), OpenError> {
        if self.running.is_none() {
            let numbers = Numbers::start(&self.command, self.is_gauge);
            self.running = Some(numbers.map_err(OpenError::Command)?);
        }
        Ok(())
    }

    fn read(&mut self, _: &Snapshot) -> io::Result<Reading> {
        let none = || io::Error::other(format!("`{}` does not run yet", self.command));
        self.running.as_mut().ok_or_else(none)?.read()
    }
}

/// A command that runs.
#[derive(Debug)]
struct Numbers {
    command: String,
    is_gauge: bool,
    shell: ShellCommand,
    read: Arc<(Mutex<Printed>, Condvar)>,
}

#[derive(Debug, Default)]
struct Printed {
    value: Option<f64>,
    /// When the last number was printed.
    at: Nanos,
    /// The longest time between two numbers.
    longest: Nanos,
    level: Level,
    ended: Option<Ended>,
}

impl Printed {
    fn take(&mut self, at: Nanos, value: f64) {
        if self.value.is_some() {
            self.longest = self.longest.max(self.silent(at));
        }
        (self.value, self.at) = (Some(value), at);
        self.level.step(at, value);
    }

    /// How long it has printed nothing.
    fn silent(&self, at: Nanos) -> Nanos {
        Nanos(at.0.saturating_sub(self.at.0))
    }

    /// Whether it has stopped printing, as when it hangs or was stopped.
    fn is_still(&self, at: Nanos) -> bool {
        self.silent(at) > Nanos::from(PATIENCE).max(Nanos(self.longest.0.saturating_mul(MAX)))
    }
}

/// Why no more numbers come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    /// It closed its output.
    Closed,
    /// A line is not a number.
    NoNumber(String),
    /// A line is too long.
    TooLong,
    /// It printed nothing for this long.
    Still(Nanos),
}

impl Numbers {
    /// Runs a command, and waits for its first number.
    ///
    /// # Errors
    /// It cannot be run, or prints no number.
    fn start(command: &str, is_gauge: bool) -> io::Result<Self> {
        let mut shell = ShellCommand::start(command, Stdio::piped(), Stdio::inherit())?;
        let output = shell.take_output().ok_or_else(|| io::Error::other("it has no output"))?;
        let read = Arc::new((Mutex::new(Printed::default()), Condvar::new()));
        let prints = Arc::clone(&read);
        // The thread ends with the command, whose end closes the pipe.
        thread::Builder::new().name("command".to_owned()).spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let line = line(&mut output);
                let (printed, changed) = &*prints;
                let mut printed = lock(printed);
                match line {
                    Ok(Some(value)) => printed.take(now(), value),
                    Ok(None) => {}
                    Err(why) => printed.ended = Some(why),
                }
                let is_over = printed.ended.is_some();
                changed.notify_all();
                if is_over {
                    return;
                }
            }
        })?;
        let mut numbers = Self { command: command.to_owned(), is_gauge, shell, read };
        let printed = {
            let (printed, changed) = &*numbers.read;
            let is_waited_for = |of: &mut Printed| of.value.is_none() && of.ended.is_none();
            let waited = changed.wait_timeout_while(lock(printed), PATIENCE, is_waited_for);
            let (printed, _) = waited.unwrap_or_else(PoisonError::into_inner);
            (printed.value, printed.ended.clone())
        };
        match printed {
            (_, Some(why)) => Err(numbers.error(&why)),
            (None, None) => Err(io::Error::other(format!(
                "`{command}` printed nothing in {} s: it must print a number a line, without buffering \
                 (python3 -u, stdbuf -oL, grep --line-buffered)",
                PATIENCE.as_secs()
            ))),
            (Some(_), None) => Ok(numbers),
        }
    }

    fn error(&mut self, why: &Ended) -> io::Error {
        let command = &self.command;
        io::Error::other(match why {
            Ended::NoNumber(text) => format!("`{command}` printed `{text}`, which is not a number"),
            Ended::TooLong => {
                format!("`{command}` printed a line of more than {LONGEST_LINE} bytes, which is not a number")
            }
            Ended::Still(silent) => format!(
                "`{command}` has printed nothing for {}: it must repeatedly print the present value, even if \
                 it has not changed",
                Nanos(silent.0 / 1_000_000_000 * 1_000_000_000)
            ),
            Ended::Closed => {
                let how =
                    self.shell.end().map_or_else(|error| error.to_string(), |status| status.to_string());
                format!(
                    "`{command}` ended ({how}): it must repeatedly print the present value, like `while \
                     sleep 0.01; do …; done`"
                )
            }
        })
    }

    fn read(&mut self) -> io::Result<Reading> {
        let (value, level, ended) = {
            let (printed, at) = (lock(&self.read.0), now());
            // The value of a gauge holds until the next one.
            let is_still = !self.is_gauge && printed.is_still(at);
            let still = || is_still.then(|| Ended::Still(printed.silent(at)));
            (printed.value, printed.level, printed.ended.clone().or_else(still))
        };
        if let Some(why) = ended {
            return Err(self.error(&why));
        }
        Ok(if self.is_gauge {
            Reading { level: Some(level.until(now())), ..Reading::default() }
        } else {
            Reading { units: value.unwrap_or_default(), ..Reading::default() }
        })
    }
}

fn lock(printed: &Mutex<Printed>) -> MutexGuard<'_, Printed> {
    // The state consists of numbers, and is consistent even if a thread panicked.
    printed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next number; `None` for an empty line.
fn line(from: &mut impl BufRead) -> Result<Option<f64>, Ended> {
    let mut line = Vec::new();
    let read = from.take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut line);
    if read.is_err() || line.is_empty() {
        return Err(Ended::Closed);
    }
    if line.len() > LONGEST_LINE {
        return Err(Ended::TooLong);
    }
    let text = String::from_utf8_lossy(&line);
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse::<f64>().ok().filter(|number| is_countable(*number));
    number.map(Some).ok_or_else(|| Ended::NoNumber(text.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn lines(text: &[u8]) -> (Vec<f64>, Ended) {
        let (mut from, mut numbers) = (BufReader::new(text), Vec::new());
        loop {
            match line(&mut from) {
                Ok(number) => numbers.extend(number),
                Err(why) => return (numbers, why),
            }
        }
    }

    #[test]
    fn each_line_is_a_number() {
        assert_eq!(lines(b"1\n 2.5 \r\n\n-3e2\n4"), (vec![1.0, 2.5, -300.0, 4.0], Ended::Closed));
        assert_eq!(lines(b"1\ntwo\n3\n"), (vec![1.0], Ended::NoNumber("two".to_owned())));
        for text in ["inf", "NaN", "-1e300"] {
            assert_eq!(lines(format!("{text}\n").as_bytes()), (vec![], Ended::NoNumber(text.to_owned())));
        }
        assert_eq!(lines(&[b'1'; 10_000]), (vec![], Ended::TooLong));
    }

    #[test]
    fn a_command_is_silent_when_it_takes_far_longer_than_before() {
        let second = |count: u64| Nanos(count * 1_000_000_000);
        let mut printed = Printed::default();
        printed.take(second(100), 1.0);
        assert!(!printed.is_still(second(105)) && printed.is_still(second(106)));
        printed.take(second(102), 1.0);
        assert!(!printed.is_still(second(122)) && printed.is_still(second(123)));
    }

    #[test]
    fn a_command_that_prints_no_number_is_an_error() {
        let error = |command| Numbers::start(command, false).unwrap_err().to_string();
        assert_eq!(error("echo of course"), "`echo of course` printed `of course`, which is not a number");
        let ended = error("exit 3");
        assert!(ended.starts_with("`exit 3` ended (exit status: 3): it must repeatedly print"), "{ended}");
    }

    proptest! {
        /// A command may print anything.
        #[test]
        fn anything_is_read(text in proptest::collection::vec(any::<u8>(), 0..600)) {
            let (numbers, _) = lines(&text);
            prop_assert!(numbers.iter().all(|number| number.is_finite()));
        }
    }
}
