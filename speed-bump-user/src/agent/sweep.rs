//! A sweep that an agent runs: what is asked for, what happens meanwhile, and how it ends.

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

/// Events that are kept until somebody asks.
const KEPT: usize = 4_096;

/// What is asked for; what is absent is as on the command line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepAsk {
    pids: Vec<i32>,
    /// Lines as a targets file has them; without any, functions are chosen by sampling.
    #[serde(default)]
    targets: Vec<String>,
    #[serde(default)]
    units: Vec<UnitSource>,
    #[serde(default)]
    bench: Option<BenchAsk>,
    #[serde(default)]
    guards: Vec<String>,
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
    #[serde(default)]
    per_function: bool,
    group: Option<GroupBy>,
    #[serde(default)]
    doses: Vec<f64>,
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
struct BenchAsk {
    command: String,
    regex: Option<String>,
    /// How many ns the number is a time in; `None`: it is work in a second.
    unit_ns: Option<u64>,
}

/// Reads what is asked for.
pub(super) fn read(ask: serde_json::Map<String, Value>) -> Result<SweepAsk, RequestError> {
    serde_json::from_value(Value::Object(ask))
        .map_err(|error| RequestError::request(format!("not a request: {error}")))
}

impl SweepAsk {
    /// The processes, and what is asked for.
    fn read(self) -> Result<(Vec<Pid>, Options), RequestError> {
        let pids = fields::pids(&self.pids)?;
        if self.bench.as_ref().is_some_and(|of| of.unit_ns == Some(0)) {
            return Err(RequestError::request(
                "`unit_ns` is 0: give the ns that one of the number's units takes",
            ));
        }
        if self.bench.as_ref().is_some_and(|of| of.unit_ns.is_some() && of.regex.is_none()) {
            return Err(RequestError::request("`unit_ns` is of a number that `regex` finds: give that too"));
        }
        let defaults = Options::default();
        let time = |ns: Option<u64>, default| ns.map_or(default, Duration::from_nanos);
        let guards = self.guards.iter().map(|text| text.parse()).collect::<Result<_, ConditionError>>();
        let options = Options {
            functions: (!self.targets.is_empty()).then(|| TargetSource::lines("targets", &self.targets)),
            units: self.units,
            bench: self.bench.map(|of| Benchmark {
                command: of.command,
                regex: of.regex,
                number: of.unit_ns.map_or(Captured::PerSecond, |ns| Captured::Time(Nanos(ns))),
            }),
            guards: guards.map_err(|error| RequestError::request(error.to_string()))?,
            time: time(self.time_ns, defaults.time),
            wait_load: time(self.wait_load_ns, defaults.wait_load),
            slice: self.slice_ns.map(Duration::from_nanos),
            seed: self.seed,
            worth: self.worth.unwrap_or(defaults.worth),
            threshold: self.threshold.unwrap_or(defaults.threshold),
            max_slowdown: self.max_slowdown.unwrap_or(defaults.max_slowdown),
            longest_call: self.longest_call_ns.map_or(defaults.longest_call, Nanos),
            closed_loop: self.closed_loop,
            per_function: self.per_function,
            group: self.group,
            doses: self.doses,
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
    /// Preparation is at this step now.
    Step { step: String },
    /// What preparation does or has found.
    Line { text: String },
    /// What is to be known of functions and processes.
    Notice { notice: Notice },
    /// What is wrong with the session.
    Warning { text: String },
    /// A phase began.
    Phase { phase: PhaseKind, ends_ns: Nanos },
    /// Slices were measured, so many in all; told once a second.
    Slices { slices: usize, phase: PhaseKind, slowdown: Option<f64>, ends_ns: Nanos },
    /// It is over: `stop` gives the experiment.
    Over {},
}

/// An event, and when it was noticed.
#[derive(Clone, Debug, Serialize)]
struct Happened {
    at_ns: Nanos,
    #[serde(flatten)]
    event: Event,
}

/// Events since somebody asked last.
#[derive(Debug, Default, Serialize)]
pub(super) struct SweepEvents {
    events: VecDeque<Happened>,
    /// How many came before these and were not kept.
    lost: u64,
}

/// How a sweep ended.
#[derive(Debug, Serialize)]
pub(super) struct Swept {
    experiment: Box<Experiment>,
}

/// A sweep that was begun.
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
    /// Begins one.
    ///
    /// It ends with `above` too, whatever its own thread is doing.
    pub(super) fn start(ask: SweepAsk, above: &Quit) -> Result<Self, RequestError> {
        let (pids, options) = ask.read()?;
        let sweep = Sweep::new(options).ended_by(above.next_quit());
        sweep.check()?;
        let (quit, log) = (sweep.quit(), Log::default());
        let mut hears = Hears { log: log.clone(), phase: None, told: None };
        let over = Over(log.clone());
        let run = move || {
            let _over = over;
            sweep.run(&pids, &mut hears)
        };
        let thread = thread::Builder::new().name("sweep".to_owned()).spawn(run)?;
        Ok(Self { quit, log, thread: Some(thread) })
    }

    /// What happened since the last time. If that is nothing, waits so long for something.
    pub(super) fn events(&self, wait: Duration, quit: &Quit) -> SweepEvents {
        wait_for(wait, quit, |look| self.log.take(look), |events| events.events.is_empty())
    }

    /// Ends it, and returns what was measured.
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

/// Events that nobody has asked for yet. Clones are the same one.
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
    // A list is whole after each change.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells of the end, also where the sweep's thread panics.
struct Over(Log);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.put(Event::Over {});
    }
}

/// Leaves what it hears in the log.
struct Hears {
    log: Log,
    phase: Option<PhaseKind>,
    /// When slices were told of.
    told: Option<Nanos>,
}

/// So often slices are told of.
const EVERY: Nanos = Nanos(1_000_000_000);

impl Observer for Hears {
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
        let ask: SweepAsk = serde_json::from_str(line).map_err(|error| error.to_string())?;
        ask.read().map(|(_, options)| options).map_err(|error| error.message)
    }

    #[test]
    fn what_is_absent_is_as_on_the_command_line() {
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
    fn what_is_no_sweep_is_refused() {
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
    fn the_oldest_events_are_lost_where_nobody_asks() {
        let log = Log::default();
        (0..KEPT + 2).for_each(|number| log.put(Event::Line { text: number.to_string() }));
        let taken = log.take(Duration::ZERO);
        assert_eq!((taken.events.len(), taken.lost), (KEPT, 2));
        assert!(log.take(Duration::ZERO).events.is_empty());
    }
}
