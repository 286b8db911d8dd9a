//! The demo's load: a client that never stops asking, and its throughput over a span.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::stop::{GLANCE, Stop};

/// How often the client reports how many requests were answered.
const EVERY: Duration = Duration::from_millis(250);
/// A request takes some 20 ms; a client that is silent for this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The client ends by itself after this time, even if we do not end it.
const LONGEST: Duration = Duration::from_secs(600);

/// Requests over a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Throughput {
    requests: f64,
    seconds: f64,
    /// Median time of a request, for each line of the client.
    medians_ms: Vec<f64>,
}

impl Throughput {
    /// Answered requests per second.
    pub(super) fn per_second(&self) -> f64 {
        self.requests / self.seconds
    }

    /// The median duration of a request, in ms: a busy moment of the machine does not show in it.
    pub(super) fn milliseconds_each(&self) -> f64 {
        median(self.medians_ms.clone())
    }

    /// Its standard error, from the differences between the client's lines.
    pub(super) fn error_ms(&self) -> f64 {
        let middle = self.milliseconds_each();
        let deviation = DEVIATION * median(self.medians_ms.iter().map(|of| (of - middle).abs()).collect());
        OF_MEDIAN * deviation / (self.medians_ms.len() as f64).sqrt()
    }

    /// From the medians alone.
    #[cfg(test)]
    pub(super) fn of_medians(medians_ms: Vec<f64>) -> Self {
        Self { medians_ms, ..Self::default() }
    }
}

/// The standard error of a median divided by that of a mean, for normal values.
const OF_MEDIAN: f64 = 1.25;
/// Half of the values of a normal distribution are within 1 / 1.4826 deviations.
const DEVIATION: f64 = 1.4826;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The running client. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Load {
    child: Child,
    lines: Receiver<String>,
}

impl Load {
    /// Starts to ask the service at this port of the loopback address; `command` runs the client.
    pub(super) fn start(mut command: Command, port: u64) -> Result<Self> {
        let mut child = command
            .args(["--port", &port.to_string()])
            .args(["--seconds", &LONGEST.as_secs().to_string()])
            .args(["--every", &EVERY.as_secs_f64().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let output = child.stdout.take().context("the client has no standard output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// The throughput from now on, over at least this long.
    pub(super) fn measure(&self, span: Duration, stop: &Stop) -> Result<Throughput> {
        while self.lines.try_recv().is_ok() {}
        // The next line still includes earlier requests.
        self.next_line(stop)?;
        let mut sum = Throughput::default();
        while sum.seconds < span.as_secs_f64() {
            let line = self.next_line(stop)?;
            let number = |key: &str| line[key].as_f64().with_context(|| format!("no {key} in {line}"));
            sum.requests += number("requests")?;
            sum.seconds += number("seconds")?;
            sum.medians_ms.push(number("median_ms")?);
        }
        Ok(sum)
    }

    fn next_line(&self, stop: &Stop) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            stop.check()?;
            match self.lines.recv_timeout(GLANCE) {
                Ok(line) => return serde_json::from_str(&line).with_context(|| format!("not JSON: {line}")),
                Err(RecvTimeoutError::Disconnected) => bail!("the client ended"),
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    bail!("the service answers nothing for {PATIENCE:?}")
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Both fail only when it has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
