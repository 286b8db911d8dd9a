//! The flags of `sweep` that say what is counted. Their order counts: verdicts go by the first.

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::experiment::sweep::UnitSource;

/// See above.
#[derive(Clone, Debug, Default)]
pub struct UnitArgs {
    /// In the order of the command line.
    pub named: Vec<UnitSource>,
    /// The benchmark.
    pub bench: BenchArgs,
}

#[derive(Debug, Args)]
struct Flags {
    /// What a unit of work is: a call of this function, symbol or USDT probe, written as a target. It is
    /// counted and never delayed. What is compared is the throughput. BEGIN..END, two targets: a unit begins
    /// with a call of the one and ends with a call of the other, and how long that takes is compared
    #[arg(long, value_name = "TARGET")]
    progress: Vec<String>,

    /// The same, of a function whose calls can be timed; what is compared is how long they take. For services
    /// that get their requests when their clients like: delays do not change how many there are
    #[arg(long, value_name = "TARGET")]
    latency: Vec<String>,

    /// A unit of work is what the service itself counts: `prometheus:URL#name` or
    /// `prometheus:URL#name{label="value"}`, of a counter, or of a histogram of seconds. Of several that are
    /// selected, the sum. Or what a command prints, the present value of a counter a line: `command:CMD`.
    /// With `gauge:` before it, it is a value that goes up and down, which is recorded only
    #[arg(long, value_name = "SOURCE")]
    metric: Vec<String>,

    /// A unit of work is a request that is answered on a socket that the processes listen on, TCP or unix: a
    /// send after a receive on the same connection. This is what counts if no other unit is named. Latencies
    /// are measured too, and compared where requests come when they like
    ///
    /// Of --progress, --latency, --metric and --sockets several may be named. Verdicts go by the first on the
    /// command line; the others are recorded, and the report says how they moved
    #[arg(long)]
    sockets: bool,

    #[command(flatten)]
    bench: BenchArgs,
}

/// A benchmark that runs once a slice.
#[derive(Clone, Debug, Default, Args)]
pub struct BenchArgs {
    /// A slice is a run of this command, in /bin/sh, and what is compared is how long it takes. The first run
    /// does not count. It has to end by itself, with success. Other metrics are recorded only
    #[arg(long = "bench", value_name = "CMD", conflicts_with_all = ["slice", "plan"])]
    pub command: Option<String>,

    /// What is compared is a number that the command prints: this regular expression finds it, with one
    /// group around it. If it finds several, the last
    #[arg(long = "bench-regex", value_name = "RE", requires = "command")]
    pub regex: Option<String>,

    /// What that number is: `/s` for work in a second, or the time of the run in `s`, `ms`, `us` or `ns`
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
