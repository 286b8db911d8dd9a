//! What is counted, by the flags: the unit of work, and what is recorded beside it.

use anyhow::anyhow;

use super::super::{
    args::{SweepArgs, units::Named},
    exit::{Failure, SYSTEM, USAGE},
};
use crate::{
    experiment::{
        guard::{Bound, Condition},
        metric::{
            Metric, Metrics,
            bench::{Bench, Captured, Pattern},
            calls::Calls,
            command::Numbers,
            flow::Flow,
            prometheus::{Gauge, Source},
            requests::{self, AnsweredRequests},
        },
        record::{By, Quantity},
    },
    targets::{TargetIndex, source::TargetSource},
    units::{Nanos, Pid},
};

/// See above.
pub(in crate::cli) struct Units {
    /// What verdicts go by.
    unit: Unit,
    further: Vec<Unit>,
    /// Targets whose calls are counted for them: the first ones.
    targets: Vec<String>,
    /// Whether somebody named what the unit is.
    is_named: bool,
}

/// A metric.
struct Unit {
    /// As the command line has it.
    source: String,
    of: UnitOf,
}

enum UnitOf {
    /// Calls of a target.
    Calls { target: TargetIndex, by: By },
    /// From calls of one target to calls of another.
    Flow { begin: TargetIndex, end: TargetIndex },
    /// What the service exports.
    Exported(Source, Kind),
    /// What a command prints.
    Printed(String, Kind),
    /// Requests that are answered on its sockets.
    Requests {
        pids: Vec<Pid>,
        /// Whether their descendants are of the service too.
        children: bool,
    },
    /// Runs of a benchmark.
    Runs(String, Option<Pattern>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

impl Units {
    pub(in crate::cli) fn of(arguments: &SweepArgs) -> Result<Self, Failure> {
        let mut targets = Vec::new();
        let mut all: Vec<Unit> = Vec::new();
        if let Some(command) = &arguments.units.bench.command {
            all.push(bench(arguments, command)?);
        }
        for named in &arguments.units.named {
            let unit = Unit::of(named, arguments, &mut targets)?;
            if all.iter().any(|other| other.source == unit.source) {
                return Err(usage(format!("{} is named twice", unit.source)));
            }
            all.push(unit);
        }
        let is_named = !all.is_empty();
        if !is_named {
            all.push(Unit::of(&Named::Sockets, arguments, &mut targets)?);
        }
        let unit = all.remove(0);
        if let UnitOf::Exported(_, Kind::Gauge) | UnitOf::Printed(_, Kind::Gauge) = unit.of {
            return Err(usage(format!(
                "{}: a gauge is no amount of work, so that verdicts cannot go by it: name what counts units \
                 first, as --progress TARGET or --sockets",
                unit.source
            )));
        }
        Ok(Self { unit, further: all, targets, is_named })
    }

    /// What verdicts go by, as the command line has it.
    pub(in crate::cli) fn source(&self) -> String {
        self.unit.source.clone()
    }

    /// What is recorded besides, as the command line has it.
    pub(in crate::cli) fn further(&self) -> Vec<String> {
        self.further.iter().map(|unit| unit.source.clone()).collect()
    }

    /// What is compared.
    pub(in crate::cli) fn by(&self) -> By {
        match &self.unit.of {
            UnitOf::Calls { by, .. } => *by,
            UnitOf::Flow { .. } => By::Latency,
            UnitOf::Runs(_, Some(pattern)) if pattern.is_time() => By::Latency,
            UnitOf::Exported(..) | UnitOf::Printed(..) | UnitOf::Requests { .. } | UnitOf::Runs(..) => {
                By::Throughput
            }
        }
    }

    /// Whether calls have to be timed all along.
    pub(in crate::cli) fn times(&self) -> bool {
        let mut all = std::iter::once(&self.unit).chain(&self.further);
        all.any(|unit| matches!(unit.of, UnitOf::Calls { by: By::Latency, .. }))
    }

    /// Whether a slice is a run of a benchmark.
    pub(in crate::cli) fn runs(&self) -> bool {
        matches!(self.unit.of, UnitOf::Runs(..))
    }

    /// The target whose calls are the units, if that is what they are.
    pub(in crate::cli) fn target(&self) -> Option<TargetIndex> {
        match self.unit.of {
            UnitOf::Calls { target, .. } | UnitOf::Flow { end: target, .. } => Some(target),
            UnitOf::Exported(..) | UnitOf::Printed(..) | UnitOf::Requests { .. } | UnitOf::Runs(..) => None,
        }
    }

    /// How many of the first targets are counted for metrics.
    pub(in crate::cli) fn targets(&self) -> u32 {
        u32::try_from(self.targets.len()).unwrap_or(u32::MAX)
    }

    /// Its own targets, if it has any.
    pub(in crate::cli) fn own(&self) -> Option<TargetSource> {
        let is_any = !self.targets.is_empty();
        is_any.then(|| TargetSource::lines("--progress and --latency", &self.targets))
    }

    /// Whether the unit has yet to be found: none is named, and the processes listen on nothing.
    pub(in crate::cli) fn is_open(&self) -> bool {
        let UnitOf::Requests { pids, children } = &self.unit.of else { return false };
        // What is wrong with them is told where they are needed.
        !self.is_named && AnsweredRequests::attach(pids, *children).is_ok_and(|requests| requests.is_none())
    }

    /// The same, where units are calls of this target.
    pub(in crate::cli) fn of_calls(self, target: String) -> Self {
        let source = format!("--progress {target}");
        let of = UnitOf::Calls { target: TargetIndex(0), by: By::Throughput };
        Self { unit: Unit { source, of }, targets: vec![target], ..self }
    }

    /// What counts units before there is a session with more than its own targets; `None` where that would
    /// start something twice.
    pub(in crate::cli) fn early_metric(&self) -> Result<Option<Box<dyn Metric>>, Failure> {
        match self.unit.of {
            UnitOf::Calls { .. } | UnitOf::Exported(..) | UnitOf::Requests { .. } => {
                self.unit.metric().map(Some)
            }
            UnitOf::Flow { .. } | UnitOf::Printed(..) | UnitOf::Runs(..) => Ok(None),
        }
    }

    /// These targets, behind its own.
    pub(in crate::cli) fn before(&self, others: TargetSource) -> TargetSource {
        match self.own() {
            Some(first) => TargetSource::Before { first: Box::new(first), others: Box::new(others) },
            None => others,
        }
    }

    /// What one is called, where it is no call.
    pub(in crate::cli) fn name(&self) -> &'static str {
        match &self.unit.of {
            UnitOf::Calls { .. } | UnitOf::Flow { .. } => "call",
            UnitOf::Exported(..) => "unit that the service counts",
            UnitOf::Printed(..) => "unit that the command counts",
            UnitOf::Requests { .. } => "request that is answered on a socket",
            UnitOf::Runs(_, Some(pattern)) if !pattern.is_time() => "unit that the benchmark counts",
            UnitOf::Runs(..) => "run of the benchmark",
        }
    }

    /// Those of the guards that bound what the unit's own metric says.
    pub(in crate::cli) fn bounds(&self, guards: &[Condition]) -> Result<Vec<Bound>, Failure> {
        let own = guards.iter().filter_map(|guard| match guard {
            Condition::Own(bound) => Some(*bound),
            Condition::Page(_) | Condition::Command(_) | Condition::Value { .. } => None,
        });
        let own: Vec<Bound> = own.collect();
        let source = &self.unit.source;
        for bound in &own {
            let is_known = match bound.quantity() {
                _ if self.runs() => false,
                Quantity::Rate => true,
                // A histogram may have a sum; whether it has, the page says.
                Quantity::Latency => !matches!(self.unit.of, UnitOf::Calls { by: By::Throughput, .. }),
                Quantity::P50 | Quantity::P99 => matches!(self.unit.of, UnitOf::Requests { .. }),
                Quantity::Mean => false,
            };
            if !is_known {
                let name = bound.quantity().name();
                return Err(usage(format!(
                    "--guard {name}: it is not known of {source}; rates are of all units but --bench, p50 \
                     and p99 of --sockets, and latencies of that, of --latency TARGET and of --progress \
                     BEGIN..END"
                )));
            }
        }
        Ok(own)
    }

    /// What counts them.
    pub(in crate::cli) fn metrics(&self) -> Result<Metrics, Failure> {
        let further = self.further.iter().map(Unit::metric).collect::<Result<_, _>>()?;
        Ok(Metrics { unit: self.unit.metric()?, further })
    }
}

impl Unit {
    /// Puts targets that it counts behind these.
    fn of(named: &Named, arguments: &SweepArgs, targets: &mut Vec<String>) -> Result<Self, Failure> {
        let mut target = |text: &str, flag: &str| -> Result<TargetIndex, Failure> {
            let text = text.trim();
            if text.is_empty() || text.starts_with(['#', '!']) || text.lines().count() > 1 {
                return Err(usage(format!("{flag} {text:?}: name one target, as '*/app.py:handle'")));
            }
            let place = targets.iter().position(|of| of == text).unwrap_or_else(|| {
                targets.push(text.to_owned());
                targets.len() - 1
            });
            Ok(TargetIndex(u32::try_from(place).unwrap_or(u32::MAX)))
        };
        Ok(match named {
            Named::Progress(text) => Self {
                source: format!("--progress {text}"),
                of: match ends(text) {
                    Some((begin, end)) => {
                        UnitOf::Flow { begin: target(begin, "--progress")?, end: target(end, "--progress")? }
                    }
                    None => UnitOf::Calls { target: target(text, "--progress")?, by: By::Throughput },
                },
            },
            Named::Latency(text) => Self {
                source: format!("--latency {text}"),
                of: UnitOf::Calls { target: target(text, "--latency")?, by: By::Latency },
            },
            Named::Metric(text) => Self { source: format!("--metric {text}"), of: source(text)? },
            Named::Sockets => Self {
                source: requests::SOURCE.to_owned(),
                of: UnitOf::Requests { pids: arguments.pids.clone(), children: !arguments.no_children },
            },
        })
    }

    fn metric(&self) -> Result<Box<dyn Metric>, Failure> {
        Ok(match &self.of {
            UnitOf::Calls { target, .. } => Box::new(Calls { target: *target }),
            UnitOf::Flow { begin, end } => Box::new(Flow::new(*begin, *end)),
            UnitOf::Exported(source, Kind::Counter) => Box::new(source.clone()),
            UnitOf::Exported(source, Kind::Gauge) => Box::new(Gauge::new(source.clone())),
            UnitOf::Printed(command, kind) => {
                let numbers = Numbers::start(command, *kind == Kind::Gauge);
                Box::new(numbers.map_err(|error| usage(format!("{}: {error}", self.source)))?)
            }
            UnitOf::Requests { pids, children } => {
                let requests = AnsweredRequests::attach(pids, *children);
                let requests = requests.map_err(|error| {
                    Failure::new(
                        SYSTEM,
                        anyhow!("requests on sockets cannot be counted: {error}; say --progress TARGET"),
                    )
                })?;
                Box::new(requests.ok_or_else(|| {
                    let text = "what is a unit of work? It listens on no socket, where requests could be \
                                counted: say --progress TARGET, --latency TARGET, or --metric SOURCE; \
                                `--help` shows examples";
                    Failure::new(USAGE, anyhow!(text))
                })?)
            }
            UnitOf::Runs(command, pattern) => Box::new(Bench::new(command, pattern.clone())),
        })
    }
}

/// `BEGIN..END`, two targets: each has a colon.
fn ends(text: &str) -> Option<(&str, &str)> {
    let mut places = text.match_indices("..");
    places.find_map(|(at, dots)| {
        let (begin, end) = (text.get(..at)?, text.get(at + dots.len()..)?);
        (begin.contains(':') && end.contains(':')).then_some((begin, end))
    })
}

fn source(text: &str) -> Result<UnitOf, Failure> {
    let (rest, kind) = match text.strip_prefix("gauge:") {
        Some(rest) => (rest, Kind::Gauge),
        None => (text, Kind::Counter),
    };
    if let Some(source) = rest.strip_prefix("prometheus:") {
        let source = Source::parse(source).map_err(|error| Failure::new(USAGE, error))?;
        return Ok(UnitOf::Exported(source, kind));
    }
    let command = rest.strip_prefix("command:").filter(|command| !command.trim().is_empty());
    let command = command.ok_or_else(|| {
        usage(format!(
            "--metric {text}: write prometheus:URL#name, prometheus:URL#name{{label=\"value\"}} or \
             command:CMD, with gauge: before it for what goes up and down"
        ))
    })?;
    Ok(UnitOf::Printed(command.to_owned(), kind))
}

fn bench(arguments: &SweepArgs, command: &str) -> Result<Unit, Failure> {
    let flags = &arguments.units.bench;
    let captured = match flags.unit.as_str() {
        "s" => Captured::Time(Nanos(1_000_000_000)),
        "ms" => Captured::Time(Nanos(1_000_000)),
        "us" => Captured::Time(Nanos(1_000)),
        "ns" => Captured::Time(Nanos(1)),
        _ => Captured::PerSecond,
    };
    let pattern = flags.regex.as_deref().map(|text| Pattern::parse(text, captured)).transpose();
    let pattern = pattern.map_err(|error| usage(format!("--bench-regex: {error}")))?;
    Ok(Unit { source: format!("--bench {command}"), of: UnitOf::Runs(command.to_owned(), pattern) })
}

fn usage(text: String) -> Failure {
    Failure::new(USAGE, anyhow!(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_targets_have_two_dots_between() {
        assert_eq!(ends("*/a.py:get..*/b.py:put"), Some(("*/a.py:get", "*/b.py:put")));
        assert_eq!(ends("../a.py:get..../b.py:put"), Some(("../a.py:get", "../b.py:put")));
        assert_eq!(ends("../a.py:get"), None);
        assert_eq!(ends("*/a.py:get"), None);
    }

    #[test]
    fn sources_are_counters_unless_they_say_gauge() {
        let is_gauge = |text| match source(text) {
            Ok(UnitOf::Exported(_, kind) | UnitOf::Printed(_, kind)) => Some(kind == Kind::Gauge),
            _ => None,
        };
        assert_eq!(is_gauge("prometheus:http://a/b#c"), Some(false));
        assert_eq!(is_gauge("gauge:prometheus:http://a/b#c"), Some(true));
        assert_eq!(is_gauge("gauge:command:echo 1"), Some(true));
        for text in ["", "command:", "gauge:", "gauge:command: ", "prometheus:b"] {
            assert_eq!(is_gauge(text), None, "{text}");
        }
    }
}
