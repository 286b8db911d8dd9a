//! A sweep that an agent runs: its request, its events and its end.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{fields, wait_for};
use crate::{
    control::RequestError,
    experiment::{
        groups::GroupBy,
        guard::ConditionError,
        metric::bench::Captured,
        record::{Experiment, Measured, PhaseKind},
        run::Now,
        sweep::{Benchmark, Observer, Options, Step, Sweep, SweepError, UnitSource},
    },
    prepare::notice::Notice,
    session::{handle::Handle, quit::Quit},
    sys::clock::now,
    targets::source::TargetSource,
    units::{Nanos, Pid},
};

/// Events that are kept for the next request.
const KEPT: usize = 4_096;

/// The request. Absent fields have the defaults of the command line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepRequest {
    pids: Vec<i32>,
    /// Lines of a targets file; without any, the sweep chooses functions by sampling.
    #[serde(default)]
    targets: Vec<String>,
    #[serde(default)]
    units: Vec<UnitSource>,
    #[serde(default)]
    bench: Option<BenchRequest>,
    #[serde(default)]
    guards: Vec<String>,
    /// A command that makes the load.
    load: Option<String>,
    time_ns: Option<u64>,
    wait_load_ns: Option<u64>,
    slice_ns: Option<u64>,
    seed: Option<u64>,
    worth: Option<f64>,
    threshold: Option<f64>,
    max_slowdown: Option<f64>,
    longest_call_ns: Option<u64>,
    #[serde(default)]
    closed_loop: bool,
    group: Option<GroupBy>,
    #[serde(default)]
    doses: Vec<f64>,
    #[serde(default)]
    record: bool,
    engine: Option<String>,
    entry: Option<String>,
    inject: Option<bool>,
    inject_timeout_ns: Option<u64>,
    #[serde(default)]
    accept_upstream_module: bool,
    children: Option<bool>,
}

/// A benchmark that runs once a slice.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BenchRequest {
    command: String,
    regex: Option<String>,
    /// The number is a time in units of this many ns; `None`: it is work per second.
    unit_ns: Option<u64>,
}

/// Reads a request.
pub(super) fn read(ask: serde_json::Map<String, Value>) -> Result<SweepRequest, RequestError> {
    serde_json::from_value(Value::Object(ask))
        .map_err(|error| RequestError::request(format!("not a request: {error}")))
}

impl SweepRequest {
    /// The processes, and the options of the sweep.
    fn read(self) -> Result<(Vec<Pid>, Options), RequestError> {
        let pids = fields::pids(&self.pids)?;
        if self.bench.as_ref().is_some_and(|bench| bench.unit_ns == Some(0)) {
            return Err(RequestError::request(
                "`unit_ns` is 0: give the length in ns of the unit in which the command prints the time",
            ));
        }
        if self.bench.as_ref().is_some_and(|bench| bench.unit_ns.is_some() && bench.regex.is_none()) {
            return Err(RequestError::request("`unit_ns` needs `regex`, which finds the number"));
        }
        let defaults = Options::default();
        let time = |ns: Option<u64>, default| ns.map_or(default, Duration::from_nanos);
        let guards = self.guards.iter().map(|text| text.parse()).collect::<Result<_, ConditionError>>();
        let options = Options {
            functions: (!self.targets.is_empty()).then(|| TargetSource::lines("targets", &self.targets)),
            units: self.units,
            bench: self.bench.map(|bench| Benchmark {
                command: bench.command,
                regex: bench.regex,
                number: bench.unit_ns.map_or(Captured::PerSecond, |ns| Captured::Time(Nanos(ns))),
            }),
            load: self.load,
            guards: guards.map_err(|error| RequestError::request(error.to_string()))?,
            time: time(self.time_ns, defaults.time),
            wait_load: time(self.wait_load_ns, defaults.wait_load),
            slice: self.slice_ns.map(Duration::from_nanos),
            seed: self.seed,
            worth: self.worth.unwrap_or(defaults.worth),
            threshold: self.threshold.unwrap_or(defaults.threshold),
            max_slowdown: self.max_slowdown.unwrap_or(defaults.max_slowdown),
            longest_call: self.longest_call_ns.map(Nanos),
            closed_loop: self.closed_loop,
            group: self.group,
            doses: self.doses,
            record: self.record,
            engine: fields::choice(self.engine.as_deref())?,
            entry: fields::choice(self.entry.as_deref())?,
            inject: self.inject.unwrap_or(defaults.inject),
            inject_timeout: time(self.inject_timeout_ns, defaults.inject_timeout),
            accept_upstream_module: self.accept_upstream_module,
            children: self.children.unwrap_or(defaults.children),
        };
        Ok((pids, options))
    }
}

/// Something that happened in a sweep.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    /// Preparation begins this step.
    Step { step: String },
    /// A line for the user about the preparation.
    Line { text: String },
    /// A notice about functions and processes.
    Notice { notice: Notice },
    /// A warning of the session.
    Warning { text: String },
    /// A phase began.
    Phase { phase: PhaseKind, ends_ns: Nanos },
    /// The number of slices measured so far, once a second.
    Slices { slices: usize, phase: PhaseKind, slowdown: Option<f64>, ends_ns: Nanos },
    /// The sweep is over: `stop` returns the experiment.
    Over {},
}

/// An event and its time.
#[derive(Clone, Debug, Serialize)]
struct Happened {
    at_ns: Nanos,
    #[serde(flatten)]
    event: Event,
}

/// Events since the last request.
#[derive(Debug, Default, Serialize)]
pub(super) struct SweepEvents {
    events: VecDeque<Happened>,
    /// Number of earlier events that were dropped.
    lost: u64,
}

/// How a sweep ended.
#[derive(Debug, Serialize)]
pub(super) struct Swept {
    experiment: Box<Experiment>,
}

/// The answer that a sweep has begun.
#[derive(Debug, Serialize)]
pub(super) struct Sweeping {
    pub(super) sweeping: bool,
}

/// A sweep, which may be over. Dropping it ends it, and waits until everything is detached.
pub(super) struct Running {
    quit: Quit,
    log: Log,
    thread: Option<JoinHandle<Result<Experiment, SweepError>>>,
}

impl Running {
    /// Starts a sweep. `above` ends it too, whatever the sweep's thread is doing.
    pub(super) fn start(ask: SweepRequest, above: &Quit) -> Result<Self, RequestError> {
        let (pids, options) = ask.read()?;
        let sweep = Sweep::new(options).ended_by(above.next_quit());
        sweep.check()?;
        let (quit, log) = (sweep.quit(), Log::default());
        let mut hears = EventLogger { log: log.clone(), phase: None, told: None };
        let over = Over(log.clone());
        let run = move || {
            let _over = over;
            sweep.run(&pids, &mut hears)
        };
        let thread = thread::Builder::new().name("sweep".to_owned()).spawn(run)?;
        Ok(Self { quit, log, thread: Some(thread) })
    }

    /// Events since the last request. If there are none, waits up to `wait` for some.
    pub(super) fn events(&self, wait: Duration, quit: &Quit) -> SweepEvents {
        wait_for(wait, quit, |poll| self.log.take(poll), |events| events.events.is_empty())
    }

    /// Ends the sweep, and returns what was measured.
    pub(super) fn stop(mut self) -> Result<Swept, RequestError> {
        self.quit.ask();
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(experiment)) => Ok(Swept { experiment: Box::new(experiment?) }),
            Some(Err(_)) | None => Err(SweepError::Panicked.into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.quit.ask();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl From<SweepError> for RequestError {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::Prepare(error) => error.into(),
            SweepError::Session(error) => error.into(),
            error => Self::failure(error.kind(), error.to_string()),
        }
    }
}

/// Events for the next request. Clones share them.
#[derive(Clone, Default)]
struct Log(Arc<(Mutex<SweepEvents>, Condvar)>);

impl Log {
    fn put(&self, event: Event) {
        let (log, came) = &*self.0;
        let mut log = lock(log);
        if log.events.len() == KEPT {
            log.events.pop_front();
            log.lost += 1;
        }
        log.events.push_back(Happened { at_ns: now(), event });
        came.notify_all();
    }

    fn take(&self, wait: Duration) -> SweepEvents {
        let (log, came) = &*self.0;
        let waited = came.wait_timeout_while(lock(log), wait, |log| log.events.is_empty());
        let (mut log, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *log)
    }
}

fn lock(log: &Mutex<SweepEvents>) -> MutexGuard<'_, SweepEvents> {
    // The list is consistent after each change.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When this value is dropped, it logs the end of the sweep, even if the sweep's thread panics.
struct Over(Log);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.put(Event::Over {});
    }
}

/// An observer that logs what it hears.
struct EventLogger {
    log: Log,
    phase: Option<PhaseKind>,
    /// When the number of slices was last logged.
    told: Option<Nanos>,
}

/// How often the number of slices is logged.
const EVERY: Nanos = Nanos(1_000_000_000);

impl Observer for EventLogger {
    fn step(&mut self, step: Step) {
        self.log.put(Event::Step { step: step.to_string() });
    }

    fn line(&mut self, text: &str) {
        self.log.put(Event::Line { text: text.to_owned() });
    }

    fn notices(&mut self, notices: &[Notice]) {
        notices.iter().for_each(|notice| self.log.put(Event::Notice { notice: notice.clone() }));
    }

    fn warning(&mut self, text: &str) {
        self.log.put(Event::Warning { text: text.to_owned() });
    }

    fn slice(&mut self, measured: &Measured, at: Now, _session: &Handle) {
        if self.phase.replace(at.phase) != Some(at.phase) {
            self.log.put(Event::Phase { phase: at.phase, ends_ns: at.ends });
        }
        if self.told.is_none_or(|told| now().0.saturating_sub(told.0) >= EVERY.0) {
            self.told = Some(now());
            let (slices, Now { phase, slowdown, ends, .. }) = (measured.slices.len(), at);
            self.log.put(Event::Slices { slices, phase, slowdown, ends_ns: ends });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn options(line: &str) -> Result<Options, String> {
        let ask: SweepRequest = serde_json::from_str(line).map_err(|error| error.to_string())?;
        ask.read().map(|(_, options)| options).map_err(|error| error.message)
    }

    #[test]
    fn absent_fields_have_the_defaults_of_the_command_line() {
        let plain = options(r#"{"pids":[7]}"#).unwrap();
        assert_eq!(format!("{plain:?}"), format!("{:?}", Options::default()));
        let named = options(
            r#"{"pids":[7],"targets":["a:b"],"units":[{"latency":"a:c"},"sockets"],"time_ns":5000000000,
                "bench":{"command":"true","regex":"([0-9]+)","unit_ns":1000},"group":"class","guards":["p99<50ms"]}"#,
        )
        .unwrap();
        assert_eq!(named.units, [UnitSource::Latency("a:c".to_owned()), UnitSource::Sockets]);
        assert_eq!((named.time, named.group), (Duration::from_secs(5), Some(GroupBy::Class)));
        assert_eq!(named.bench.unwrap().number, Captured::Time(Nanos(1_000)));
        assert!(named.functions.is_some() && named.guards.len() == 1);
    }

    #[test]
    fn invalid_requests_are_refused() {
        for line in [
            r#"{"pids":[]}"#,
            r#"{"pids":[0]}"#,
            r#"{"pids":[7],"units":["nothing"]}"#,
            r#"{"pids":[7],"guards":["p9<50ms"]}"#,
            r#"{"pids":[7],"engine":"x"}"#,
            r#"{"pids":[7],"seconds":5}"#,
            r#"{"pids":[7],"bench":{"command":"true","unit_ns":1000}}"#,
            r#"{"pids":[7],"bench":{"command":"true","regex":"([0-9]+)","unit_ns":0}}"#,
        ] {
            assert!(options(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_oldest_events_are_dropped_when_there_are_too_many() {
        let log = Log::default();
        (0..KEPT + 2).for_each(|number| log.put(Event::Line { text: number.to_string() }));
        let taken = log.take(Duration::ZERO);
        assert_eq!((taken.events.len(), taken.lost), (KEPT, 2));
        assert!(log.take(Duration::ZERO).events.is_empty());
    }
}
