//! The handle for programs in other languages and on other machines: requests and answers, each a line of
//! JSON. docs/agent.md describes them; the schema is [`SCHEMA`].
//!
//! One session at a time. Every request gets one answer, in their order, and every error is an answer.

mod answer;
mod error;
mod request;
mod serve;
mod sweep;

use std::time::Duration;

use serde_json::Value;

use crate::{
    control::server::Server,
    policy::{Dose, Selection},
    prepare::{Prepared, Purpose},
    session::{
        doses::Applied,
        handle::{Handle, Outcome},
        known::FunctionId,
        quit::Quit,
        snapshot::Snapshot,
    },
    targets::{TargetChange, TargetIndex},
};
use answer::{Attached, Planned, Seen, Stopped, Taken, TargetsChanged};
use error::AgentError;
use request::{Ask, DoseAsk};
pub use serve::serve;

/// Name and version of the protocol; a change that programs would notice gets another number.
pub const SCHEMA: &str = "speed-bump/agent/1";

/// What a request may wait for events.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often a wait looks whether it should go on.
const LOOKS: Duration = Duration::from_millis(100);

/// What has been asked for so far.
#[derive(Default)]
enum State {
    #[default]
    Nothing,
    Prepared(Box<Prepared>),
    Running(Box<Running>),
    Sweeping(sweep::Running),
}

/// A session, which may be over.
struct Running {
    /// For people, beside.
    _control: Option<Server>,
    handle: Handle,
    outcome: Option<Outcome>,
}

/// Answers requests. Dropping it detaches.
pub struct Agent {
    state: State,
    quit: Quit,
}

impl Agent {
    /// One without a session. `quit` has it stop, whatever it is doing.
    pub fn new(quit: Quit) -> Self {
        Self { state: State::Nothing, quit }
    }

    /// Answers a line, in a line without its end.
    pub fn answer(&mut self, line: &[u8]) -> String {
        let (id, ask) = request::read(line);
        let answer = ask.and_then(|ask| self.take(ask));
        answer::line(&id, answer)
    }

    fn take(&mut self, ask: Ask) -> Result<Value, AgentError> {
        match ask {
            Ask::Prepare(ask) => {
                self.none_runs()?;
                let (pids, request) = ask.read()?;
                let prepared = Prepared::of_processes(&pids, &request, Purpose::Attach)?;
                let plans = answer::value(&Planned::of(&prepared));
                self.state = State::Prepared(Box::new(prepared));
                plans
            }
            Ask::Start {} => self.start(),
            Ask::Set { doses } => self.set(&doses),
            Ask::ChangeTargets { add, drop } => self.change_targets(&add, drop),
            Ask::Snapshot { names } => {
                let snapshot = self.running()?.snapshot()?;
                answer::value(&Seen::of(&snapshot, names))
            }
            Ask::Sweep(ask) => {
                self.none_runs()?;
                self.state = State::Sweeping(sweep::Running::start(*ask)?);
                answer::value(&sweep::Sweeping { sweeping: true })
            }
            Ask::Events { wait_ms } => {
                let wait = Duration::from_millis(wait_ms).min(LONGEST_WAIT);
                let quit = self.quit.clone();
                if let State::Sweeping(sweep) = &self.state {
                    return answer::value(&sweep.events(wait, &quit));
                }
                let running = self.running()?;
                answer::value(&Taken::of(running.events(wait, &quit)))
            }
            Ask::Report {} => answer::value(&self.running()?.report()?),
            Ask::Stop {} => self.stop(),
        }
    }

    fn start(&mut self) -> Result<Value, AgentError> {
        match std::mem::take(&mut self.state) {
            State::Prepared(prepared) => {
                let pids = prepared.processes().iter().map(|process| process.pid()).collect();
                let handle = prepared.start(self.quit.next_stop())?;
                let control = Server::start(handle.controls().clone(), pids);
                let control = control.inspect_err(|error| tracing::info!("`set` cannot reach it: {error}"));
                let running = Running { _control: control.ok(), handle, outcome: None };
                self.state = State::Running(Box::new(running));
                answer::value(&Attached { started: true })
            }
            other => {
                self.state = other;
                Err(AgentError::state("nothing is prepared, or it was started already: `prepare` first"))
            }
        }
    }

    fn set(&mut self, doses: &[DoseAsk]) -> Result<Value, AgentError> {
        let running = self.running()?;
        if running.is_over() {
            return Err(AgentError::state("the session is over: `stop` gives its report"));
        }
        let known = running.handle.controls().known();
        let mut changes: Vec<(Selection, Dose)> = Vec::with_capacity(doses.len());
        for ask in doses {
            let selection = match ask.of()? {
                request::Of::Target(index) => Selection::Target(index),
                request::Of::Function(id) => {
                    let function = known.get(FunctionId(id)).ok_or_else(|| {
                        AgentError::request(format!("there is no function {id}: the last is {}", known.len()))
                    })?;
                    Selection::Function(function.clone())
                }
            };
            changes.push((selection, ask.dose()?));
        }
        answer::value(&running.handle.set(&changes)?)
    }

    fn change_targets(&mut self, add: &[String], drop: Vec<u32>) -> Result<Value, AgentError> {
        let running = self.running()?;
        if running.is_over() {
            return Err(AgentError::state("the session is over: `stop` gives its report"));
        }
        let controls = running.handle.controls();
        let known = controls.targets();
        let drop: Vec<TargetIndex> = drop.into_iter().map(TargetIndex).collect();
        if let Some(index) = drop.iter().find(|index| known.get(**index).is_none()) {
            let text = format!("there is no target {}: the session has {}", index.0, known.len());
            return Err(AgentError::request(text));
        }
        let first = known.len();
        let add = request::lines(add, controls)?;
        let added: Vec<usize> = (first..first + add.len()).collect();
        let Applied { at } = controls.change_targets(TargetChange { add, drop })?;
        answer::value(&TargetsChanged { targets: added, at_ns: at })
    }

    /// Ends the session, if there is one, and forgets what was prepared.
    fn stop(&mut self) -> Result<Value, AgentError> {
        match std::mem::take(&mut self.state) {
            State::Running(running) => answer::value(&Stopped::of(running.stop()?)?),
            State::Sweeping(sweep) => answer::value(&sweep.stop()?),
            State::Prepared(_) => Ok(Value::Object(serde_json::Map::new())),
            State::Nothing => Err(AgentError::state("nothing is prepared or started")),
        }
    }

    /// One at a time.
    fn none_runs(&self) -> Result<(), AgentError> {
        match &self.state {
            State::Running(_) => Err(AgentError::state("a session is running: `stop` it first")),
            State::Sweeping(_) => Err(AgentError::state("a sweep is running: `stop` it first")),
            State::Nothing | State::Prepared(_) => Ok(()),
        }
    }

    fn running(&mut self) -> Result<&mut Running, AgentError> {
        match &mut self.state {
            State::Running(running) => Ok(running),
            State::Sweeping(_) => {
                Err(AgentError::state("a sweep is running: it takes `events` and `stop` alone"))
            }
            State::Nothing | State::Prepared(_) => {
                Err(AgentError::state("no session was started: `prepare`, and then `start`"))
            }
        }
    }
}

impl Running {
    fn is_over(&mut self) -> bool {
        if self.outcome.is_none() {
            self.outcome = self.handle.wait_for(Duration::ZERO).ok().flatten();
        }
        self.outcome.is_some()
    }

    fn snapshot(&self) -> Result<Snapshot, AgentError> {
        Ok(self.handle.snapshot()?)
    }

    fn events(&self, wait: Duration, quit: &Quit) -> crate::session::events::Events {
        let mut left = wait;
        loop {
            let look = left.min(LOOKS);
            let events = self.handle.controls().events(look);
            left -= look;
            if !events.events.is_empty() || left.is_zero() || quit.is_asked() {
                return events;
            }
        }
    }

    fn report(&mut self) -> Result<crate::stats::report::SessionReport, AgentError> {
        if self.is_over()
            && let Some(outcome) = &self.outcome
        {
            return Ok(outcome.report.clone());
        }
        self.handle.report().ok_or_else(|| AgentError::state("the session is over: `stop` gives its report"))
    }

    fn stop(mut self: Box<Self>) -> Result<Outcome, AgentError> {
        if let Some(outcome) = self.outcome.take() {
            return Ok(outcome);
        }
        self.handle.stop();
        Ok(self.handle.wait()?)
    }
}
