//! Options of a sweep.

use std::time::Duration;

use serde::Deserialize;

use crate::{
    engine::EngineChoice,
    experiment::{groups::GroupBy, guard::Condition, metric::bench::Captured},
    policy::DelayBound,
    prepare::Request,
    python::entry_source::EntryChoice,
    targets::source::TargetSource,
    units::Nanos,
};

/// The window of the bound on threads before the time per unit is known.
const FIRST_WINDOW: Duration = Duration::from_millis(100);

/// Options of a sweep. [`Options::default`] is the command without flags.
#[derive(Clone, Debug)]
pub struct Options {
    /// The functions; `None`: sampling chooses those that take time.
    pub functions: Option<TargetSource>,
    /// The metrics: verdicts use the first, and the others are recorded. Without any, units are requests on
    /// sockets.
    pub units: Vec<UnitSource>,
    /// A benchmark that runs once in each slice: then verdicts use its runs, and all `units` are recorded.
    pub bench: Option<Benchmark>,
    /// Conditions that end the sweep when they do not hold.
    pub guards: Vec<Condition>,
    /// A command that makes the load, for `/bin/sh`: the sweep starts it before it measures anything, starts
    /// it again if it ends with success, and ends it at its own end. Not with `bench`.
    pub load: Option<String>,
    /// How long the whole sweep may take, including preparation.
    pub time: Duration,
    /// How long to wait if the load goes away.
    pub wait_load: Duration,
    /// Length of a slice; automatic without it.
    pub slice: Option<Duration>,
    /// Seed of the random order; a new one without it.
    pub seed: Option<u64>,
    /// A function that is worth less than this share of the time per unit does not matter.
    pub worth: f64,
    /// A function also does not matter if less than this share of its added time shows up, unless its 95 %
    /// interval is above zero and its estimate is worth at least `worth`.
    pub threshold: f64,
    /// How much longer units may take, as a share of their time.
    pub max_slowdown: f64,
    /// The longest delay of a call. The default is 10 ms; for Python functions it is `max_slowdown` times the
    /// time per unit, at least 10 ms and at most a second.
    pub longest_call: Option<Nanos>,
    /// Whether clients send the next request as soon as they have an answer.
    pub closed_loop: bool,
    /// How to group functions that are delayed together, if at all.
    pub group: Option<GroupBy>,
    /// The doses of the last phase, as shares of the time per unit; automatic without any.
    pub doses: Vec<f64>,
    /// Whether to delay nothing: the record has the pace of the service alone.
    pub record: bool,
    /// The engine.
    pub engine: EngineChoice,
    /// The entry source of Python functions.
    pub entry: EntryChoice,
    /// Whether the helper may be loaded into processes.
    pub inject: bool,
    /// How long to wait for a thread of a Python process that can be stopped safely to load the helper.
    pub inject_timeout: Duration,
    /// With the engine `kmod`: whether to accept upstream's module.
    pub accept_upstream_module: bool,
    /// Whether to cover child processes.
    pub children: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            functions: None,
            units: Vec::new(),
            bench: None,
            guards: Vec::new(),
            load: None,
            time: Duration::from_secs(120),
            wait_load: Duration::from_secs(30),
            slice: None,
            seed: None,
            worth: 0.01,
            threshold: 0.1,
            max_slowdown: 0.2,
            longest_call: None,
            closed_loop: false,
            group: None,
            doses: Vec::new(),
            record: false,
            engine: EngineChoice::Auto,
            entry: EntryChoice::Auto,
            inject: true,
            inject_timeout: Request::INJECT_TIMEOUT,
            accept_upstream_module: false,
            children: true,
        }
    }
}

/// An invalid option.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// A share out of range.
    #[error("`{name}` is {share}: it must be more than 0 and less than 1")]
    Share {
        /// The option's name.
        name: &'static str,
        /// Its value.
        share: f64,
    },
    /// A dose that slows units down by more than allowed.
    #[error(
        "a dose is {dose}, and `max_slowdown` is {max_slowdown}: what is hidden up to some delay shows \
         beyond it, so longer doses do not tell what matters"
    )]
    Dose {
        /// The dose.
        dose: f64,
        /// The most that is allowed.
        max_slowdown: f64,
    },
    /// A benchmark and a load.
    #[error("`load` and `bench`: a benchmark makes its own load, so the sweep takes one of them")]
    LoadAndBench,
    /// A load that is no command.
    #[error("`load` is empty: it is a command that makes the load, as 'wrk -d 1h http://localhost:8000/'")]
    NoLoad,
    /// A delay of a call that is too long.
    #[error("`longest_call` is {0}: the longest delay of a call is {longest}", longest = Nanos::MAX_DELAY)]
    LongestCall(Nanos),
}

impl Options {
    /// Checks that all numbers are in range.
    pub(super) fn check(&self) -> Result<(), OptionError> {
        let Self { worth, threshold, max_slowdown, .. } = *self;
        let named = [("worth", worth), ("threshold", threshold), ("max_slowdown", max_slowdown)];
        let shares = named.into_iter().chain(self.doses.iter().map(|dose| ("doses", *dose)));
        for (name, share) in shares {
            if !(share > 0.0 && share < 1.0) {
                return Err(OptionError::Share { name, share });
            }
        }
        if let Some(dose) = self.doses.iter().copied().find(|dose| *dose > max_slowdown) {
            return Err(OptionError::Dose { dose, max_slowdown });
        }
        if self.load.is_some() && self.bench.is_some() {
            return Err(OptionError::LoadAndBench);
        }
        if self.load.as_ref().is_some_and(|command| command.trim().is_empty()) {
            return Err(OptionError::NoLoad);
        }
        if let Some(longest) = self.longest_call.filter(|longest| *longest > Nanos::MAX_DELAY) {
            return Err(OptionError::LongestCall(longest));
        }
        Ok(())
    }

    /// The bound on what each thread is delayed, until the time per unit is known; `None`: the engine cannot
    /// keep to a bound.
    fn bound(&self) -> Option<DelayBound> {
        let can = match self.engine {
            EngineChoice::Auto => true,
            EngineChoice::Only(engine) => engine.capabilities().bound,
        };
        // A checked slow-down is a share of the time.
        DelayBound::new(self.max_slowdown, FIRST_WINDOW).ok().filter(|_| can)
    }

    /// The text for the user if only the plan bounds what a thread is delayed.
    pub(super) fn unbounded(&self) -> Option<String> {
        let EngineChoice::Only(engine) = self.engine else { return None };
        let text = format!(
            "the engine `{engine}` cannot keep to a bound on what a thread is delayed: the sweep plans no \
             more than --max-slowdown allows, and nothing else enforces that; --engine bpf does"
        );
        self.bound().is_none().then_some(text)
    }

    /// The request for a session with these targets.
    pub(super) fn request(&self, targets: TargetSource) -> Request {
        Request {
            bound: self.bound(),
            engine: self.engine,
            entry: self.entry,
            inject: self.inject,
            inject_timeout: self.inject_timeout,
            accept_upstream_module: self.accept_upstream_module,
            children: self.children,
            ..Request::new(targets)
        }
    }
}

/// A unit of work or metric.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitSource {
    /// Calls of a target; or of two targets, with `..` between them.
    Progress(String),
    /// Calls of a target, and how long they take. Or `p50`, `p90`, `p95` or `p99`: that quantile of the
    /// latency of requests on sockets.
    Latency(String),
    /// A number that the service exports or a command prints: `prometheus:URL#name` or `command:CMD`, with
    /// `gauge:` before it for a value that goes up and down.
    Metric(String),
    /// Requests on sockets.
    Sockets,
}

/// A command that runs once in each slice. It must end by itself, with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Benchmark {
    /// The command, for `/bin/sh`.
    pub command: String,
    /// A regular expression with one group around the printed number; `None` to compare how long a run takes.
    pub regex: Option<String>,
    /// The meaning of that number.
    pub number: Captured,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineKind;

    #[test]
    fn doses_are_no_longer_than_units_may_be_slowed_down() {
        let check = |doses: &[f64]| Options { doses: doses.to_vec(), ..Options::default() }.check();
        assert_eq!(check(&[0.05, 0.2]), Ok(()));
        assert_eq!(check(&[0.05, 0.4]), Err(OptionError::Dose { dose: 0.4, max_slowdown: 0.2 }));
    }

    #[test]
    fn a_load_is_a_command_and_no_benchmark() {
        let number = Captured::PerSecond;
        let bench = Some(Benchmark { command: "true".to_owned(), regex: None, number });
        let check = |load: &str, bench: &Option<Benchmark>| {
            Options { load: Some(load.to_owned()), bench: bench.clone(), ..Options::default() }.check()
        };
        assert_eq!(check("sleep 1000", &None), Ok(()));
        assert_eq!(check("sleep 1000", &bench), Err(OptionError::LoadAndBench));
        assert_eq!(check(" ", &None), Err(OptionError::NoLoad));
    }

    #[test]
    fn sessions_of_sweeps_have_a_bound_unless_their_engine_cannot_keep_to_one() {
        let of = |engine| {
            let options = Options { engine, ..Options::default() };
            (options.request(TargetSource::lines("targets", &["*:f"])).bound, options.unbounded())
        };
        let kinds = [EngineKind::Bpf, EngineKind::Signal, EngineKind::Helper].map(EngineChoice::Only);
        for engine in kinds.into_iter().chain([EngineChoice::Auto]) {
            let (bound, told) = of(engine);
            let share = bound.map_or(0.0, DelayBound::share);
            assert!((share - 0.2).abs() < 1e-5 && told.is_none(), "{engine:?}: {bound:?}, {told:?}");
        }
        let (bound, told) = of(EngineChoice::Only(EngineKind::Kmod));
        let told = told.unwrap_or_default();
        assert!(bound.is_none() && told.starts_with("the engine `kmod` cannot keep to a bound"), "{told}");
    }
}
