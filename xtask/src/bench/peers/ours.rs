//! This tool, driven by its `agent`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use speed_bump_testing::{Agent, Service};

use super::{Peer, dose::Dose};

/// How long the window stays closed: until the first dose has been measured, and for as long as doses hold
/// without the loader (`Control::EXPIRY_NS`); only then does the helper read the clock for each call.
const CLOSED: Duration = Duration::from_millis(1_800);

/// One of its engines.
pub(super) struct Ours {
    pub(super) tool: PathBuf,
    pub(super) name: &'static str,
    pub(super) engine: &'static str,
    /// The line of the targets file.
    pub(super) target: &'static str,
    session: Option<Session>,
    agent: Option<Agent>,
}

struct Session {
    opens: Instant,
}

impl Ours {
    pub(super) fn new(tool: &Path, name: &'static str, engine: &'static str, target: &'static str) -> Self {
        Self { tool: tool.to_owned(), name, engine, target, session: None, agent: None }
    }

    /// One agent for all rounds: each measures the machine when it starts.
    fn ask(&mut self, request: &Value) -> Result<Value> {
        let agent = match &mut self.agent {
            Some(agent) => agent,
            None => self.agent.insert(Agent::start_as(Command::new(&self.tool).stderr(Stdio::null()))?),
        };
        agent.ask(request)
    }
}

impl Peer for Ours {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn begin(&mut self, service: &mut Service) -> Result<()> {
        let (delay_ns, frequency) = Dose::Closed.delay_and_frequency();
        let start_after = u64::try_from(CLOSED.as_nanos()).unwrap_or(u64::MAX);
        let mut request = json!({
            "do": "prepare", "pids": [service.pid()], "targets": [self.target], "engine": self.engine,
            "delay_ns": delay_ns, "frequency": frequency, "start_after_ns": start_after, "strict": true,
        });
        if self.target.starts_with("py:") {
            request["entry"] = json!("helper");
        }
        self.ask(&request)?;
        self.ask(&json!({ "do": "start" }))?;
        self.session = Some(Session { opens: Instant::now() + CLOSED });
        Ok(())
    }

    fn set(&mut self, _: &mut Service, dose: Dose) -> Result<bool> {
        if dose == Dose::Closed {
            return Ok(true);
        }
        if let Some(Session { opens }) = self.session.take() {
            let left = opens.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "the window opened while calls before it were measured");
            thread::sleep(left);
        }
        let (delay_ns, frequency) = dose.delay_and_frequency();
        let doses = json!([{ "target": 0, "delay_ns": delay_ns, "frequency": frequency }]);
        self.ask(&json!({ "do": "set", "doses": doses }))?;
        Ok(true)
    }

    fn end(&mut self, _: &mut Service) -> Result<()> {
        let stopped = self.ask(&json!({ "do": "stop" }))?;
        let delayed = stopped["report"]["targets"][0]["delayed"].as_u64();
        ensure!(delayed.context("the report has no delayed calls")? > 0, "no call was delayed");
        Ok(())
    }
}
