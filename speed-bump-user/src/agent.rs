//! Lets programs in any language prepare, start, drive and stop a session by requests, as docs/agent.md
//! describes them.
//!
//! One session at a time. Every request gets one answer, in their order, and every error is an answer.

mod answer;
mod fields;
mod prepare;
mod serve;
mod sweep;

use std::time::Duration;

use serde_json::Value;

use crate::{
    control::{
        RequestError,
        answer::{to_line, value},
        request::{self, Ask},
        running,
        server::Server,
    },
    prepare::{Prepared, Purpose},
    session::{
        controls::Controls,
        handle::{Handle, Outcome},
        quit::Quit,
        snapshot::Snapshot,
    },
    units::Pid,
};
use answer::{Attached, EventsAnswer, Planned, SnapshotAnswer, Stopped};
pub(crate) use serve::serve;

/// The longest wait of a request for events.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often a wait checks whether it should end.
const POLL: Duration = Duration::from_millis(100);

/// What the agent is doing.
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
    /// Serves `set` and `sessions` beside the agent.
    _control: Option<Server>,
    pids: Vec<Pid>,
    handle: Handle,
    outcome: Option<Outcome>,
}

/// Answers requests. Dropping it detaches.
pub(crate) struct Agent {
    state: State,
    quit: Quit,
}

impl Agent {
    /// An agent without a session. `quit` stops whatever it is doing.
    pub(crate) fn new(quit: Quit) -> Self {
        Self { state: State::Nothing, quit }
    }

    /// Answers a line; the answer has no line end.
    pub(crate) fn answer(&mut self, line: &[u8]) -> String {
        let (id, ask) = request::read(line);
        let answer = ask.and_then(|ask| self.take(ask));
        to_line(&id, answer)
    }

    fn take(&mut self, ask: Ask) -> Result<Value, RequestError> {
        match ask {
            Ask::Prepare(ask) => {
                self.none_runs()?;
                let (pids, request) = prepare::read(&ask)?;
                let prepared = Prepared::of_processes(&pids, &request, Purpose::Attach)?;
                let plans = value(&Planned::new(&prepared));
                self.state = State::Prepared(Box::new(prepared));
                plans
            }
            Ask::Start {} => self.start(),
            Ask::About {} => {
                let running = self.running()?;
                value(&running::about(running.handle.controls(), &running.pids))
            }
            Ask::Set(ask) => value(&running::set(self.controls()?, ask.doses(), ask.lines())?),
            Ask::ChangeTargets { add, drop } => {
                value(&running::change_targets(self.controls()?, &add, &drop)?)
            }
            Ask::Snapshot { names } => {
                let snapshot = self.running()?.snapshot()?;
                value(&SnapshotAnswer::new(&snapshot, names))
            }
            Ask::Sweep(ask) => {
                self.none_runs()?;
                self.state = State::Sweeping(sweep::Running::start(sweep::read(ask)?, &self.quit)?);
                value(&sweep::Sweeping { sweeping: true })
            }
            Ask::Events { wait_ms } => {
                let wait = Duration::from_millis(wait_ms).min(LONGEST_WAIT);
                let quit = self.quit.clone();
                if let State::Sweeping(sweep) = &self.state {
                    return value(&sweep.events(wait, &quit));
                }
                let running = self.running()?;
                value(&EventsAnswer::new(running.events(wait, &quit)))
            }
            Ask::Report {} => value(&self.running()?.report()?),
            Ask::Stop {} => self.stop(),
        }
    }

    fn start(&mut self) -> Result<Value, RequestError> {
        match std::mem::take(&mut self.state) {
            State::Prepared(prepared) => {
                let pids: Vec<Pid> = prepared.processes().iter().map(|process| process.pid()).collect();
                let handle = prepared.start(self.quit.next_stop())?;
                let control = Server::start(handle.controls().clone(), pids.clone());
                let control = control.inspect_err(|error| tracing::info!("`set` cannot reach it: {error}"));
                let running = Running { _control: control.ok(), pids, handle, outcome: None };
                self.state = State::Running(Box::new(running));
                value(&Attached { started: true })
            }
            other => {
                self.state = other;
                Err(RequestError::state("nothing is prepared, or it was already started: `prepare` first"))
            }
        }
    }

    /// The controls of the running session.
    fn controls(&mut self) -> Result<&Controls, RequestError> {
        let running = self.running()?;
        if running.is_over() {
            return Err(RequestError::state("the session is over: `stop` returns its report"));
        }
        Ok(running.handle.controls())
    }

    /// Ends the session or sweep, or drops what was prepared.
    fn stop(&mut self) -> Result<Value, RequestError> {
        match std::mem::take(&mut self.state) {
            State::Running(running) => value(&Stopped::new(running.stop()?)?),
            State::Sweeping(sweep) => value(&sweep.stop()?),
            State::Prepared(_) => Ok(Value::Object(serde_json::Map::new())),
            State::Nothing => Err(RequestError::state("nothing is prepared or started")),
        }
    }

    /// Fails if a session or a sweep runs.
    fn none_runs(&self) -> Result<(), RequestError> {
        match &self.state {
            State::Running(_) => Err(RequestError::state("a session is running: `stop` it first")),
            State::Sweeping(_) => Err(RequestError::state("a sweep is running: `stop` it first")),
            State::Nothing | State::Prepared(_) => Ok(()),
        }
    }

    fn running(&mut self) -> Result<&mut Running, RequestError> {
        match &mut self.state {
            State::Running(running) => Ok(running),
            State::Sweeping(_) => {
                Err(RequestError::state("a sweep is running: only `events` and `stop` are possible"))
            }
            State::Nothing | State::Prepared(_) => {
                Err(RequestError::state("no session was started: `prepare` and `start` first"))
            }
        }
    }
}

/// Takes events. If there are none, waits for some until `wait` is over or `quit` is asked.
fn wait_for<E>(
    wait: Duration,
    quit: &Quit,
    take: impl Fn(Duration) -> E,
    is_empty: impl Fn(&E) -> bool,
) -> E {
    let mut left = wait;
    loop {
        let poll = left.min(POLL);
        let events = take(poll);
        left -= poll;
        if !is_empty(&events) || left.is_zero() || quit.is_asked() {
            return events;
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

    fn snapshot(&self) -> Result<Snapshot, RequestError> {
        Ok(self.handle.snapshot()?)
    }

    fn events(&self, wait: Duration, quit: &Quit) -> crate::session::events::Events {
        wait_for(wait, quit, |poll| self.handle.controls().events(poll), |events| events.events.is_empty())
    }

    fn report(&mut self) -> Result<crate::stats::report::SessionReport, RequestError> {
        if self.is_over()
            && let Some(outcome) = &self.outcome
        {
            return Ok(outcome.report.clone());
        }
        self.handle
            .report()
            .ok_or_else(|| RequestError::state("the session is over: `stop` returns its report"))
    }

    fn stop(mut self: Box<Self>) -> Result<Outcome, RequestError> {
        if let Some(outcome) = self.outcome.take() {
            return Ok(outcome);
        }
        self.handle.stop();
        Ok(self.handle.wait()?)
    }
}
