//! The flags of `sweep` that name units of work and metrics. Their order counts: verdicts use the first one.

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::experiment::sweep::UnitSource;

/// The metrics that these flags name.
#[derive(Clone, Debug, Default)]
pub struct UnitArgs {
    /// In the order of the command line.
    pub named: Vec<UnitSource>,
    /// The benchmark.
    pub bench: BenchArgs,
}

#[derive(Debug, Args)]
struct Flags {
    /// A unit of work is a call of this function, symbol or USDT probe, written as a target. It is counted
    /// and never delayed. The sweep compares throughput. BEGIN..END, two targets: a unit begins with a call
    /// of the first and ends with a call of the second, and the sweep compares how long that takes
    #[arg(long, value_name = "TARGET")]
    progress: Vec<String>,

    /// Like --progress, but the sweep compares how long the calls take. The function must be one that --times
    /// can time. For services whose requests come at their own pace, so that delays do not change throughput.
    /// Or a quantile, p50, p90, p95 or p99: then units are requests, as with --sockets, and the sweep
    /// compares that quantile of their latency. A function that few requests call changes a high quantile,
    /// but hardly the mean
    #[arg(long, value_name = "TARGET|QUANTILE")]
    latency: Vec<String>,

    /// A unit of work is what the service itself counts: `prometheus:URL#name` or
    /// `prometheus:URL#name{label="value"}`, a counter, or a histogram of seconds; several matches add up. Or
    /// `command:CMD`, a command that prints the present value of a counter on each line. `gauge:` before
    /// either means a value that goes up and down; the sweep only records it
    #[arg(long, value_name = "SOURCE")]
    metric: Vec<String>,

    /// A unit of work is an answered request on a socket that the processes listen on, TCP or unix: a send
    /// after a receive on the same connection. This is the default. Latencies are measured too, and compared
    /// if requests come at their own pace
    ///
    /// You may give several of --progress, --latency, --metric and --sockets. Verdicts use the first one on
    /// the command line; the sweep records the others, and the report says how they changed
    #[arg(long)]
    sockets: bool,

    #[command(flatten)]
    bench: BenchArgs,
}

/// A benchmark that runs once a slice.
#[derive(Clone, Debug, Default, Args)]
pub struct BenchArgs {
    /// A slice is a run of this command, in /bin/sh, and the sweep compares how long it takes. The first run
    /// does not count. The command must end by itself, with success. Other metrics are only recorded
    #[arg(long = "bench", value_name = "CMD", conflicts_with_all = ["slice", "plan"])]
    pub command: Option<String>,

    /// Compare a number that the command prints: the group of the last match of this regular expression
    #[arg(long = "bench-regex", value_name = "RE", requires = "command")]
    pub regex: Option<String>,

    /// What that number is: `/s` for work per second, or the time of the run in `s`, `ms`, `us` or `ns`
    #[arg(long = "bench-unit", value_name = "UNIT", default_value = "/s", requires = "regex",
          value_parser = ["/s", "s", "ms", "us", "ns"])]
    pub unit: String,
}

impl FromArgMatches for UnitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = Flags::from_arg_matches(matches)?;
        let mut named: Vec<(usize, UnitSource)> = Vec::new();
        let mut add = |name: &str, values: Vec<UnitSource>| {
            named.extend(matches.indices_of(name).into_iter().flatten().zip(values));
        };
        add("progress", flags.progress.into_iter().map(UnitSource::Progress).collect());
        add("latency", flags.latency.into_iter().map(UnitSource::Latency).collect());
        add("metric", flags.metric.into_iter().map(UnitSource::Metric).collect());
        add("sockets", if flags.sockets { vec![UnitSource::Sockets] } else { Vec::new() });
        named.sort_by_key(|(place, _)| *place);
        Ok(Self { named: named.into_iter().map(|(_, named)| named).collect(), bench: flags.bench })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for UnitArgs {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        units: UnitArgs,
        #[arg(long)]
        slice: bool,
        #[arg(long)]
        plan: bool,
    }

    #[test]
    fn the_order_of_the_command_line_is_kept() {
        let of = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.units.named);
        let [a, b] = ["a", "b"].map(str::to_owned);
        assert_eq!(
            of("x --metric a --sockets --latency a --metric b --progress b").unwrap(),
            [
                UnitSource::Metric(a.clone()),
                UnitSource::Sockets,
                UnitSource::Latency(a),
                UnitSource::Metric(b.clone()),
                UnitSource::Progress(b)
            ]
        );
        assert_eq!(of("x").unwrap(), []);
        assert!(of("x --bench-regex a").is_err());
        assert!(of("x --bench a --slice").is_err());
        assert!(of("x --bench a --bench-unit ms").is_err());
    }
}
