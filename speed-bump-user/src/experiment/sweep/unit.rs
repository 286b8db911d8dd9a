//! The unit of work and further metrics of a sweep.

use std::time::Duration;

use super::{
    error::SweepError,
    options::{Options, UnitSource},
};
use crate::{
    experiment::{
        guard::{Bound, Condition},
        metric::{
            Metric, Metrics, OpenError,
            bench::{Bench, Pattern, PatternError},
            calls::Calls,
            command::PrintedNumbers,
            flow::Flow,
            prometheus::{Gauge, Source, SourceError},
            requests::AnsweredRequests,
            steps::{Steps, StepsInside},
        },
        record::{By, InnerUnit},
    },
    probe::plan::SelectedFunction,
    targets::{TargetIndex, source::TargetSource},
    units::Pid,
};

/// The metrics of a sweep.
#[derive(Debug)]
pub(super) struct Units {
    /// The metrics.
    pub(super) metrics: Metrics,
    /// The name of the unit's metric, as on the command line.
    pub(super) source: String,
    /// The names of the further metrics.
    pub(super) further: Vec<String>,
    /// The targets of the metrics, which come first in the session.
    targets: Vec<String>,
    /// The target whose calls are steps of units, if steps are counted. This target comes next in the
    /// session.
    step: Option<String>,
    /// The shortest chip with enough steps.
    pub(super) shortest_chip: Option<Duration>,
    /// Whether the user named the unit.
    is_named: bool,
}

/// Why a named unit or metric is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It is named twice.
    #[error("{0} is named twice")]
    Twice(String),
    /// A gauge comes first.
    #[error(
        "{0}: a gauge is no amount of work, so that verdicts cannot go by it: name what counts units first, \
         as --progress TARGET or --sockets"
    )]
    Gauge(String),
    /// A guard bounds a quantity that the metric does not have.
    #[error(
        "--guard {quantity}: it is not known of {unit}; rates are of all units but --bench, p50 and p99 of \
         --sockets, and latencies of that, of --latency TARGET and of --progress BEGIN..END"
    )]
    Bound {
        /// The quantity.
        quantity: &'static str,
        /// The unit's metric.
        unit: String,
    },
    /// It does not name exactly one target.
    #[error("{flag} {text:?}: name one target, as '*/app.py:handle'")]
    Target {
        /// The flag.
        flag: &'static str,
        /// The text.
        text: String,
    },
    /// It is not a source of numbers.
    #[error(
        "--metric {0}: write prometheus:URL#name, prometheus:URL#name{{label=\"value\"}} or command:CMD, \
         with gauge: before it for what goes up and down"
    )]
    Metric(String),
    /// It is not a metric of a page.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It is not a regular expression with one group.
    #[error("--bench-regex: {0}")]
    Pattern(PatternError),
}

impl From<PatternError> for UnitError {
    fn from(error: PatternError) -> Self {
        Self::Pattern(error)
    }
}

/// The functions whose calls are steps.
pub(super) enum StepsOf {
    /// Those of a target, which the session gets for this.
    Target(String),
    /// A function that the user wants tried.
    Function(SelectedFunction),
}

/// A metric with its name.
struct Named {
    source: String,
    metric: Box<dyn Metric>,
}

impl Units {
    /// The metrics that the options name, for these processes. They do not count yet.
    pub(super) fn new(options: &Options, processes: &[Pid]) -> Result<Self, UnitError> {
        let mut targets = Vec::new();
        let mut all: Vec<Named> = Vec::new();
        if let Some(bench) = &options.bench {
            let pattern =
                bench.regex.as_deref().map(|text| Pattern::parse(text, bench.number)).transpose()?;
            let metric = Box::new(Bench::new(&bench.command, pattern));
            all.push(Named { source: format!("--bench {}", bench.command), metric });
        }
        let mut named = |unit: &UnitSource| Named::new(unit, processes, options.children, &mut targets);
        for unit in &options.units {
            let unit = named(unit)?;
            if all.iter().any(|other| other.source == unit.source) {
                return Err(UnitError::Twice(unit.source));
            }
            all.push(unit);
        }
        let is_named = !all.is_empty();
        if !is_named {
            all.push(named(&UnitSource::Sockets)?);
        }
        let Named { source, metric: unit } = all.remove(0);
        if unit.unit().is_none() {
            return Err(UnitError::Gauge(source));
        }
        let (further, metrics) = all.into_iter().map(|named| (named.source, named.metric)).unzip();
        let metrics = Metrics { unit, further: metrics };
        Ok(Self { metrics, source, further, targets, step: None, shortest_chip: None, is_named })
    }

    /// Whether calls must be timed during the whole experiment.
    pub(super) fn times_calls(&self) -> bool {
        let mut all = std::iter::once(&self.metrics.unit).chain(&self.metrics.further);
        all.any(|metric| metric.times_calls())
    }

    /// The number of targets of metrics.
    pub(super) fn targets(&self) -> usize {
        self.targets.len()
    }

    /// The number of targets that are not only tried: those of metrics, and that of steps.
    pub(super) fn counted_targets(&self) -> usize {
        self.targets.len() + usize::from(self.step.is_some())
    }

    /// The targets of metrics, if there are any.
    pub(super) fn own(&self) -> Option<TargetSource> {
        let lines: Vec<String> = self.targets.iter().chain(&self.step).cloned().collect();
        (!lines.is_empty()).then(|| TargetSource::lines("--progress and --latency", &lines))
    }

    /// The targets of metrics, these that may be steps, and then others.
    pub(super) fn before_steps(&self, steps: &[String], others: TargetSource) -> TargetSource {
        let lines: Vec<String> = self.targets.iter().chain(steps).cloned().collect();
        let first = Box::new(TargetSource::lines("--progress and --latency", &lines));
        TargetSource::Before { first, others: Box::new(others) }
    }

    /// The targets of metrics, followed by these targets.
    pub(super) fn before(&self, others: TargetSource) -> TargetSource {
        match self.own() {
            Some(first) => TargetSource::Before { first: Box::new(first), others: Box::new(others) },
            None => others,
        }
    }

    /// Whether the sweep must choose the unit: none is named, and the processes listen on no socket.
    pub(super) fn is_open(&mut self) -> bool {
        // Other errors are reported when the metric opens.
        !self.is_named && matches!(self.metrics.unit.open(), Err(OpenError::NoSocket))
    }

    /// These metrics, with calls of this target as units.
    pub(super) fn with_calls(self, target: String) -> Self {
        let source = format!("--progress {target}");
        let unit = Box::new(Calls::new(TargetIndex(0), By::Throughput));
        let metrics = Metrics { unit, ..self.metrics };
        Self { metrics, source, targets: vec![target], ..self }
    }

    /// Counts steps of the units in their place: calls of a target, or of a function that is tried. Chips
    /// take at least `chip`.
    pub(super) fn count_steps(&mut self, of: StepsOf, inner: InnerUnit, chip: Duration) {
        let number = TargetIndex(u32::try_from(self.targets.len()).unwrap_or(u32::MAX));
        let calls = Calls::new(number, By::Throughput);
        let steps = match of {
            StepsOf::Target(line) => {
                self.step = Some(line);
                Steps::Target(calls)
            }
            StepsOf::Function(function) => Steps::Function(function),
        };
        let longer = std::mem::replace(&mut self.metrics.unit, Box::new(calls));
        self.metrics.unit = Box::new(StepsInside::new(steps, longer, inner));
        self.shortest_chip = Some(chip);
    }

    /// Starts all metrics, unless they have started.
    pub(super) fn open(&mut self) -> Result<(), SweepError> {
        self.metrics.open().map_err(|(place, error)| {
            let further = place.checked_sub(1).and_then(|place| self.further.get(place));
            SweepError::Open { unit: further.unwrap_or(&self.source).clone(), error }
        })
    }

    /// Starts the unit's metric, unless it has started.
    pub(super) fn open_unit(&mut self) -> Result<(), SweepError> {
        let opened = self.metrics.unit.open();
        opened.map_err(|error| SweepError::Open { unit: self.source.clone(), error })
    }

    /// The guards that bound the unit's own metric.
    pub(super) fn bounds(&self, guards: &[Condition]) -> Result<Vec<Bound>, UnitError> {
        let own = guards.iter().filter_map(|guard| match guard {
            Condition::Own(bound) => Some(*bound),
            Condition::Page(_) | Condition::Command(_) | Condition::Value { .. } => None,
        });
        let own: Vec<Bound> = own.collect();
        match own.iter().find(|bound| !self.metrics.unit.has(bound.quantity())) {
            Some(bound) => {
                Err(UnitError::Bound { quantity: bound.quantity().name(), unit: self.source.clone() })
            }
            None => Ok(own),
        }
    }
}

impl Named {
    /// The metric of a unit. Adds its targets to `targets`.
    fn new(
        unit: &UnitSource,
        processes: &[Pid],
        children: bool,
        targets: &mut Vec<String>,
    ) -> Result<Self, UnitError> {
        let mut target = |text: &str, flag: &'static str| -> Result<TargetIndex, UnitError> {
            let text = text.trim();
            if text.is_empty() || text.starts_with(['#', '!']) || text.lines().count() > 1 {
                return Err(UnitError::Target { flag, text: text.to_owned() });
            }
            let place = targets.iter().position(|of| of == text).unwrap_or_else(|| {
                targets.push(text.to_owned());
                targets.len() - 1
            });
            Ok(TargetIndex(u32::try_from(place).unwrap_or(u32::MAX)))
        };
        let (source, metric): (String, Box<dyn Metric>) = match unit {
            UnitSource::Progress(text) => (
                format!("--progress {text}"),
                match ends(text) {
                    Some((begin, end)) => {
                        Box::new(Flow::new(target(begin, "--progress")?, target(end, "--progress")?))
                    }
                    None => Box::new(Calls::new(target(text, "--progress")?, By::Throughput)),
                },
            ),
            UnitSource::Latency(text) => (
                format!("--latency {text}"),
                match quantile(text) {
                    Some(by) => Box::new(AnsweredRequests::new(processes, children, by)),
                    None => Box::new(Calls::new(target(text, "--latency")?, By::Latency)),
                },
            ),
            UnitSource::Metric(text) => (format!("--metric {text}"), numbers(text)?),
            UnitSource::Sockets => {
                ("--sockets".to_owned(), Box::new(AnsweredRequests::new(processes, children, By::Throughput)))
            }
        };
        Ok(Self { source, metric })
    }
}

/// `p99`: a quantile of the latency of requests on sockets. A target has a colon.
fn quantile(text: &str) -> Option<By> {
    By::QUANTILES.into_iter().find(|by| by.name() == text.trim())
}

/// `BEGIN..END`, two targets: each has a colon.
fn ends(text: &str) -> Option<(&str, &str)> {
    let mut places = text.match_indices("..");
    places.find_map(|(at, dots)| {
        let (begin, end) = (text.get(..at)?, text.get(at + dots.len()..)?);
        (begin.contains(':') && end.contains(':')).then_some((begin, end))
    })
}

/// A metric that the service exports or a command prints.
fn numbers(text: &str) -> Result<Box<dyn Metric>, UnitError> {
    let (rest, is_gauge) = match text.strip_prefix("gauge:") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    if let Some(source) = rest.strip_prefix("prometheus:") {
        let source = Source::parse(source)?;
        return Ok(if is_gauge { Box::new(Gauge::new(source)) } else { Box::new(source) });
    }
    let command = rest.strip_prefix("command:").filter(|command| !command.trim().is_empty());
    let command = command.ok_or_else(|| UnitError::Metric(text.to_owned()))?;
    Ok(Box::new(PrintedNumbers::new(command, is_gauge)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_dots_separate_two_targets() {
        assert_eq!(ends("*/a.py:get..*/b.py:put"), Some(("*/a.py:get", "*/b.py:put")));
        assert_eq!(ends("../a.py:get..../b.py:put"), Some(("../a.py:get", "../b.py:put")));
        assert_eq!(ends("../a.py:get"), None);
        assert_eq!(ends("*/a.py:get"), None);
    }

    #[test]
    fn quantiles_are_no_targets() {
        assert_eq!(quantile(" p99"), Some(By::P99));
        assert_eq!([quantile("p999"), quantile("latency"), quantile("*/app.py:p99")], [None; 3]);
    }

    #[test]
    fn sources_are_counters_unless_prefixed_with_gauge() {
        let is_gauge = |text| numbers(text).ok().map(|metric| metric.unit().is_none());
        assert_eq!(is_gauge("prometheus:http://a/b#c"), Some(false));
        assert_eq!(is_gauge("gauge:prometheus:http://a/b#c"), Some(true));
        assert_eq!(is_gauge("gauge:command:echo 1"), Some(true));
        for text in ["", "command:", "gauge:", "gauge:command: ", "prometheus:b"] {
            assert_eq!(is_gauge(text), None, "{text}");
        }
    }
}
