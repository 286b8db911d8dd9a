//! The load: clients that ask, wait for the answer, and ask again.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result};
use speed_bump_testing::{Fixture, Service};

use super::Slice;

/// The compiled client.
#[derive(Debug)]
pub(super) struct Client(Fixture);

impl Client {
    pub(super) fn compile(sources: &Path) -> Result<Self> {
        Fixture::compile(&sources.join("client.c"), &["-O2", "-pthread"]).map(Self)
    }

    /// Starts to ask the server at this socket, from `threads` threads.
    pub(super) fn start(&self, socket: &Path, threads: usize) -> Result<Load> {
        let mut command = Command::new(self.0.program());
        Ok(Load(Service::start(command.arg(socket).arg(threads.to_string()))?))
    }

    /// How many turns of slow.h take this long, on this machine at this moment.
    pub(super) fn turns(&self, us: u64) -> Result<u64> {
        let Load(mut idle) = self.start(Path::new(""), 0)?;
        let answer = idle.ask(&format!("turns {}", us * 1000))?;
        answer.first().and_then(|event| event["turns"].as_u64()).context("the client names no turns")
    }
}

/// A running client. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Load(Service);

impl Load {
    /// The answers from now on, for `ms` milliseconds.
    pub(super) fn slice(&mut self, ms: u64) -> Result<Slice> {
        let answer = self.0.ask(&format!("slice {ms}"))?;
        let event = answer.first().context("the client says nothing of the slice")?;
        let number = |key: &str| event[key].as_f64().with_context(|| format!("no {key} in {event}"));
        let per_second = number("count")? * 1000.0 / ms as f64;
        Ok(Slice { per_second, p50_ns: number("p50_ns")?, p99_ns: number("p99_ns")? })
    }
}
