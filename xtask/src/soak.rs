//! `cargo xtask soak`: hundreds of attach and detach cycles on live Python servers.
//!
//! After each cycle the server must still run, and no request may have failed. At the end it may not have
//! more threads, descriptors, mappings or memory than after the first cycles, which load the helper and fill
//! caches.

mod load;

use std::{process::ExitCode, thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{self, Form},
    session::Attached,
};

use crate::{release, root};
use load::Load;

/// The kinds of `servers.py`, and whether each serves requests.
const SERVERS: [(&str, bool); 4] = [("threaded", true), ("asyncio", true), ("idle", false), ("busy", false)];
/// Clients of a server that serves.
const CLIENTS: usize = 4;
/// Cycles before we first measure what the server uses.
const SETTLING: usize = 20;
/// How long a session lasts.
const STAY: Duration = Duration::from_millis(30);
/// By how much a server's numbers may grow by chance: an arena of the allocator.
const MAPPINGS: i64 = 4;
/// By how much a server's resident memory may grow by chance, in kilobytes.
const RESIDENT_KB: i64 = 2_048;

#[derive(Args)]
pub(crate) struct Options {
    /// Attach and detach cycles on each server.
    #[arg(long, default_value_t = 500)]
    cycles: usize,
    /// Only Pythons whose description contains this, such as `3.12`.
    #[arg(long, default_value = "")]
    only: String,
    /// Only this server: threaded, asyncio, idle or busy.
    #[arg(long, default_value = "")]
    server: String,
}

/// Runs the cycles on each Python and each server; fails at the first change.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let tool = release::build()?;
    root::go_on_as_root(&tool)?;
    println!(
        "{:<32} {:<9} {:>7} {:>9} {:>9}   threads, descriptors, mappings, resident kB: after {SETTLING} \
         cycles → at the end",
        "", "server", "cycles", "requests", "calls"
    );
    for python in pythons::find()? {
        let name = python.to_string();
        if python.form == Form::Container || !name.contains(&options.only) {
            continue;
        }
        for (server, serves) in SERVERS.into_iter().filter(|(server, _)| server.contains(&options.server)) {
            let soaked = soak(&tool, python, server, serves, options.cycles)
                .with_context(|| format!("{name}, {server}"))?;
            println!(
                "{name:<32} {server:<9} {:>7} {:>9} {:>9}   {} → {}",
                options.cycles, soaked.requests, soaked.calls, soaked.before, soaked.after
            );
            soaked.before.allow(&soaked.after).with_context(|| format!("{name}, {server}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The result for one server.
struct Soaked {
    requests: u64,
    calls: u64,
    before: State,
    after: State,
}

fn soak(
    tool: &std::path::Path,
    python: &PythonBuild,
    server: &str,
    serves: bool,
    cycles: usize,
) -> Result<Soaked> {
    let mut command = python.command(&places::root().join("xtask/src/soak/servers.py"));
    command.arg(server);
    let mut service = Service::start(&mut command).context("cannot start the server")?;
    let port = service.ready()["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let mut soaked = Soaked { requests: 0, calls: 0, before: State::default(), after: State::default() };
    for (count, is_settling) in [(SETTLING.min(cycles), true), (cycles.saturating_sub(SETTLING), false)] {
        let load = port.filter(|_| serves).map(|port| Load::start(port, CLIENTS));
        for cycle in 0..count {
            soaked.calls += one_cycle(tool, service.pid()).with_context(|| format!("cycle {cycle}"))?;
        }
        if let Some(load) = load {
            soaked.requests += load.finish()?;
        }
        // Meanwhile the threads of closed connections end.
        thread::sleep(Duration::from_millis(500));
        let state = State::read(&mut service)?;
        *(if is_settling { &mut soaked.before } else { &mut soaked.after }) = state;
    }
    if soaked.calls == 0 && server != "idle" {
        bail!("the tool counted no call in {cycles} sessions");
    }
    service.ask("quit")?;
    Ok(soaked)
}

/// Attaches, waits a moment, and detaches. Returns how many calls were counted.
fn one_cycle(tool: &std::path::Path, pid: i32) -> Result<u64> {
    let flags = ["--delay", "2us", "--entry", "helper"];
    let attached = Attached::start_tool(
        tool,
        pid,
        "py:*/servers.py:handle\npy:*/servers.py:transform\n",
        &flags,
        |_| (),
    )?;
    thread::sleep(STAY);
    let ended = attached.stop()?;
    let targets = ended.report["targets"].as_array().context("the report has no targets")?;
    Ok(targets.iter().filter_map(|target| target["calls"].as_u64()).sum())
}

/// The resources of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    threads: i64,
    descriptors: i64,
    mappings: i64,
    resident_kb: i64,
}

impl State {
    fn read(service: &mut Service) -> Result<Self> {
        let answer = service.ask("state")?;
        let state = answer.iter().find(|event| event["event"] == "state").context("no state")?;
        let number = |name: &str| state[name].as_i64().with_context(|| format!("no {name} in {state}"));
        Ok(Self {
            threads: number("threads")?,
            descriptors: number("descriptors")?,
            mappings: number("mappings")?,
            resident_kb: number("resident_kb")?,
        })
    }

    /// Fails if `after` uses more than this.
    fn allow(&self, after: &Self) -> Result<()> {
        for (what, before, after, more) in [
            ("threads", self.threads, after.threads, 0),
            ("file descriptors", self.descriptors, after.descriptors, 0),
            ("mappings", self.mappings, after.mappings, MAPPINGS),
            ("resident kilobytes", self.resident_kb, after.resident_kb, RESIDENT_KB),
        ] {
            if after > before + more {
                bail!("the server had {before} {what} and has {after} now");
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, {}, {}", self.threads, self.descriptors, self.mappings, self.resident_kb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_refused() {
        let before = State { threads: 3, descriptors: 9, mappings: 100, resident_kb: 20_000 };
        assert!(before.allow(&before).is_ok());
        assert!(before.allow(&State { threads: 2, mappings: 104, ..before }).is_ok());
        assert!(before.allow(&State { threads: 4, ..before }).is_err());
        assert!(before.allow(&State { descriptors: 10, ..before }).is_err());
        assert!(before.allow(&State { mappings: 105, ..before }).is_err());
        assert!(before.allow(&State { resident_kb: 22_049, ..before }).is_err());
    }
}
