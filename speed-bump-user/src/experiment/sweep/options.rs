//! What a sweep is asked for.

use std::time::Duration;

use serde::Deserialize;

use crate::{
    engine::EngineChoice,
    experiment::{groups::GroupBy, guard::Condition, metric::bench::Captured},
    prepare::Request,
    python::entry_source::EntryChoice,
    targets::source::TargetSource,
    units::Nanos,
};

/// What a sweep is asked for. [`Options::default`] is what the command does without flags.
#[derive(Clone, Debug)]
pub struct Options {
    /// The functions; `None`: those that take time, by sampling.
    pub functions: Option<TargetSource>,
    /// What is counted: verdicts go by the first, and the others are recorded. Where there is none, units are
    /// requests on sockets.
    pub units: Vec<UnitSource>,
    /// A benchmark that runs once a slice: then verdicts go by its runs, and all `units` are recorded.
    pub bench: Option<Benchmark>,
    /// What ends the sweep when it does not hold.
    pub guards: Vec<Condition>,
    /// How long all of it may take, with preparation.
    pub time: Duration,
    /// How long to wait for load that went away.
    pub wait_load: Duration,
    /// How long a slice of constant delays is; by itself where it is not given.
    pub slice: Option<Duration>,
    /// What the random order comes from; another one each time where it is not given.
    pub seed: Option<u64>,
    /// A function that is worth less than this share of a unit's time does not matter.
    pub worth: f64,
    /// Nor does one of whose added time less than this share shows up, unless it seems to be worth that.
    pub threshold: f64,
    /// The share of its time that a unit may be slowed down by.
    pub max_slowdown: f64,
    /// The longest delay of a call.
    pub longest_call: Nanos,
    /// Whether clients ask again as soon as they have an answer.
    pub closed_loop: bool,
    /// Whether all functions are tried one by one, without a screen of many at once.
    pub per_function: bool,
    /// Whether functions are delayed together, by where they are defined.
    pub group: Option<GroupBy>,
    /// The doses of the last phase, as shares of a unit's time; by itself where there are none.
    pub doses: Vec<f64>,
    /// Who delays.
    pub engine: EngineChoice,
    /// How Python calls are seen.
    pub entry: EntryChoice,
    /// Whether the helper may be loaded into processes.
    pub inject: bool,
    /// How long a thread of a Python process may take to come to a point where it can be borrowed.
    pub inject_timeout: Duration,
    /// With the engine `kmod`: whether upstream's module will do.
    pub accept_upstream_module: bool,
    /// Whether child processes are covered.
    pub children: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            functions: None,
            units: Vec::new(),
            bench: None,
            guards: Vec::new(),
            time: Duration::from_secs(120),
            wait_load: Duration::from_secs(30),
            slice: None,
            seed: None,
            worth: 0.01,
            threshold: 0.1,
            max_slowdown: 0.2,
            longest_call: Nanos(10_000_000),
            closed_loop: false,
            per_function: false,
            group: None,
            doses: Vec::new(),
            engine: EngineChoice::Auto,
            entry: EntryChoice::Auto,
            inject: true,
            inject_timeout: Request::INJECT_TIMEOUT,
            accept_upstream_module: false,
            children: true,
        }
    }
}

/// An option that no sweep can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// A share that is none.
    #[error("`{name}` is {share}: it has to be more than 0 and less than 1")]
    Share {
        /// Of the option.
        name: &'static str,
        /// Value that the option was given.
        share: f64,
    },
    /// A delay of a call that is too long.
    #[error("`longest_call` is {0}: a call can be delayed by {longest} at most", longest = Nanos::MAX_DELAY)]
    LongestCall(Nanos),
}

impl Options {
    /// Whether all numbers are in their bounds.
    pub(super) fn check(&self) -> Result<(), OptionError> {
        let Self { worth, threshold, max_slowdown, .. } = *self;
        let named = [("worth", worth), ("threshold", threshold), ("max_slowdown", max_slowdown)];
        let shares = named.into_iter().chain(self.doses.iter().map(|dose| ("doses", *dose)));
        for (name, share) in shares {
            if !(share > 0.0 && share < 1.0) {
                return Err(OptionError::Share { name, share });
            }
        }
        if self.longest_call > Nanos::MAX_DELAY {
            return Err(OptionError::LongestCall(self.longest_call));
        }
        Ok(())
    }

    /// What a session of these targets is asked for.
    pub(super) fn request(&self, targets: TargetSource) -> Request {
        Request {
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

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitSource {
    /// Calls of a target; or of two, with `..` between.
    Progress(String),
    /// Calls of a target, and how long they take.
    Latency(String),
    /// Something that is exported, or printed by a command: `prometheus:URL#name` or `command:CMD`, with
    /// `gauge:` before it for what goes up and down.
    Metric(String),
    /// Requests on sockets.
    Sockets,
}

/// A command that runs once a slice, and has to end by itself, with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Benchmark {
    /// For `/bin/sh`.
    pub command: String,
    /// What finds the number that it prints, with one group around that; `None` where what is compared is how
    /// long a run takes.
    pub regex: Option<String>,
    /// Whether the number is work in a second, or a time.
    pub number: Captured,
}
