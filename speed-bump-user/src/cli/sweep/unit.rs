//! What a unit of work is, by the flags.

use anyhow::anyhow;

use super::super::{
    args::SweepArgs,
    exit::{Failure, SYSTEM, USAGE},
};
use crate::{
    experiment::{
        metric::{Metric, calls::Calls, prometheus::Source, requests::AnsweredRequests},
        record::By,
    },
    targets::{TargetIndex, source::TargetSource},
    units::Pid,
};

/// The target whose calls are units comes first.
const FIRST: TargetIndex = TargetIndex(0);

/// See above.
pub(in crate::cli) enum UnitOf {
    /// Calls of a target.
    Calls {
        /// The target.
        target: String,
        /// What is compared.
        by: By,
    },
    /// What the service exports.
    Exported(Source, String),
    /// Requests that are answered on its sockets.
    Requests {
        /// The processes.
        pids: Vec<Pid>,
        /// Whether their descendants are of the service too.
        children: bool,
    },
}

impl UnitOf {
    pub(in crate::cli) fn of(arguments: &SweepArgs) -> Result<Self, Failure> {
        let usage = |text: String| Failure::new(USAGE, anyhow!(text));
        if let Some(target) = &arguments.progress {
            return Ok(Self::Calls { target: target.clone(), by: By::Throughput });
        }
        if let Some(target) = &arguments.latency {
            return Ok(Self::Calls { target: target.clone(), by: By::Latency });
        }
        if let Some(metric) = &arguments.metric {
            let source = metric.strip_prefix("prometheus:").ok_or_else(|| {
                usage(format!(
                    "--metric {metric}: write prometheus:URL#name, or prometheus:URL#name{{label=\"value\"}}"
                ))
            })?;
            let source = Source::parse(source).map_err(|error| Failure::new(USAGE, error))?;
            return Ok(Self::Exported(source, metric.clone()));
        }
        Ok(Self::Requests { pids: arguments.pids.clone(), children: !arguments.no_children })
    }

    /// As the command line has it.
    pub(in crate::cli) fn source(&self) -> String {
        match self {
            Self::Calls { target, by: By::Throughput } => format!("--progress {target}"),
            Self::Calls { target, by: By::Latency } => format!("--latency {target}"),
            Self::Exported(_, metric) => format!("--metric {metric}"),
            Self::Requests { .. } => "--sockets".to_owned(),
        }
    }

    /// What is compared.
    pub(in crate::cli) fn by(&self) -> By {
        match self {
            Self::Calls { by, .. } => *by,
            Self::Exported(..) | Self::Requests { .. } => By::Throughput,
        }
    }

    /// The target whose calls are the units, if that is what they are.
    pub(in crate::cli) fn target(&self) -> Option<TargetIndex> {
        matches!(self, Self::Calls { .. }).then_some(FIRST)
    }

    /// Its own target, if it has one.
    pub(in crate::cli) fn own(&self) -> Option<TargetSource> {
        match self {
            Self::Calls { target, by: By::Throughput } => Some(TargetSource::lines("--progress", &[target])),
            Self::Calls { target, by: By::Latency } => Some(TargetSource::lines("--latency", &[target])),
            Self::Exported(..) | Self::Requests { .. } => None,
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
        match self {
            Self::Calls { .. } => "call",
            Self::Exported(..) => "unit that the service counts",
            Self::Requests { .. } => "request that is answered on a socket",
        }
    }

    /// What counts them.
    pub(in crate::cli) fn metric(&self) -> Result<Box<dyn Metric>, Failure> {
        Ok(match self {
            Self::Calls { .. } => Box::new(Calls { target: FIRST }),
            Self::Exported(source, _) => Box::new(source.clone()),
            Self::Requests { pids, children } => {
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
        })
    }
}
