//! The flags of `sweep`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{EngineArgs, ExportArgs, TargetArgs, delay, span, units::UnitArgs};
use crate::{
    experiment::{groups::GroupBy, guard::Condition},
    units::{Nanos, Pid},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  # Which functions of a service matter? A unit of work is a request on one of its sockets
  sudo speed-bump-ebpf sweep --pid 4711

  # The same, where a unit is a call of `handle`
  sudo speed-bump-ebpf sweep --pid 4711 --targets targets.txt --progress '*/app.py:handle'

  # The same, for all functions that take time
  sudo speed-bump-ebpf sweep --pid 4711 --progress '*/app.py:handle'

  # The same, where a request begins with one function and ends with another
  sudo speed-bump-ebpf sweep --pid 4711 --progress '*/app.py:accept..*/app.py:answer'

  # Compare the results of a benchmark, and record the number of errors
  sudo speed-bump-ebpf sweep --pid 4711 --bench './bench.sh' --bench-regex 'requests/sec: ([0-9.]+)' \\
      --metric prometheus:http://localhost:8000/metrics#errors_total

  # Start the load with the sweep, and end it with the sweep
  sudo speed-bump-ebpf sweep --pid 4711 --load 'wrk -c 8 -d 1h http://localhost:8000/'

  # Keep all measurements, and print the report again
  sudo speed-bump-ebpf sweep --pid 4711 -t '*/app.py:*' --progress '*/app.py:handle' --json out.json
  speed-bump-ebpf report out.json

What the columns mean:
  calls/unit     calls of the function per unit of work, without delays
  own/unit       its own time per unit, without other selected functions
  sensitivity    the share of added time that shows up in the time per unit, with a 95 % interval:
                 1 is on the critical path, 0 is hidden. With N parallel workers it is 1/N on the
                 critical path
  worth at most  sensitivity × own time, as a share of the time per unit: what making the function
                 free would gain
  verdict        `matters` and `does not matter` each have an error of 5 % at most; all other
                 functions are undecided

Exit codes: 0 even if nothing is decided; 6 if a guard ended the sweep; 8 if the load went away, or the
metric does not measure work; else as without a command. In each of these cases, and after Ctrl-C, the
sweep reports what it measured so far.";

/// Flags of `sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Process to experiment on; repeat for several
    #[arg(short = 'p', long = "pid", value_name = "PID", required = true)]
    pub pids: Vec<Pid>,

    /// Which functions
    #[command(flatten)]
    pub which: TargetArgs,

    /// Units of work and metrics
    #[command(flatten)]
    pub units: UnitArgs,

    /// End the experiment and all delays when this does not hold: `http://HOST/PATH` answers with success,
    /// `command:CMD` succeeds, `prometheus:URL#name<5` stays within its bound, or the unit's metric does:
    /// `rate>100`, `latency<20ms`, `p50<10ms`, `p99<50ms`, over the last second or 100 units. Checked every
    /// 100 ms; repeat for several
    #[arg(long = "guard", value_name = "CONDITION")]
    pub guards: Vec<Condition>,

    /// Start this command, in /bin/sh, to make the load of the service, and wait for the first units of work.
    /// If the command ends with success, the sweep starts it again. If it fails, the sweep ends. When the
    /// sweep ends, it also ends the command
    #[arg(long, value_name = "CMD", conflicts_with = "command")]
    pub load: Option<String>,

    /// How long the whole sweep may take, including preparation
    #[arg(long = "for", value_name = "TIME", value_parser = span, default_value = "120s")]
    pub time: Duration,

    /// How long to wait, without delays, if the load goes away; then the experiment ends without a verdict.
    /// Also how long to wait for the first unit of work after --load
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "30s")]
    pub wait_load: Duration,

    /// Length of a chip, a slice of constant delays [default: 8 units of work, at least 20 or 150ms, by
    /// metric]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub slice: Option<Duration>,

    /// The seed of the random order [default: a new one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// A function that is worth less than this share of the time per unit does not matter
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%")]
    pub worth: f64,

    /// A function also does not matter if less than this share of its added time shows up, unless its 95 %
    /// interval is above zero and its estimate is worth at least --worth
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.1")]
    pub threshold: f64,

    /// The most that units of work may be slowed down by; checked every 100 ms
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "20%")]
    pub max_slowdown: f64,

    /// The longest delay of a single call. Without this flag it is 10 ms; for Python functions it is
    /// --max-slowdown times the time per unit, at least 10 ms and at most 1 s
    #[arg(long, value_name = "TIME", value_parser = delay)]
    pub longest_call: Option<Nanos>,

    /// The clients send the next request as soon as they have an answer, like benchmark tools. Without this
    /// flag, the verdict `does not matter` needs another function that is shown to matter: if requests come
    /// at their own pace, they set the throughput, and no function changes it
    #[arg(long)]
    pub closed_loop: bool,

    /// Test functions together, by class, module (file), package (folder) or thread. Each is delayed by its
    /// share of the group's own time
    #[arg(long, value_name = "BY")]
    pub group: Option<GroupBy>,

    /// The added time of a delayed function, as a share of the time per unit. The sweep draws one of several
    /// at random [default: --max-slowdown; less at first, and if the sensitivity is above 1]
    #[arg(long, value_name = "PERCENT,...", value_parser = percent, value_delimiter = ',')]
    pub doses: Vec<f64>,

    /// Delay nothing, and record how the pace of the service varies until the time is up, for simulations
    #[arg(long, conflicts_with_all = ["plan", "doses"])]
    pub record: bool,

    /// Print the schedule and how sure the result would be; count and time calls for a while, and delay
    /// nothing
    #[arg(long)]
    pub plan: bool,

    /// How calls are seen, and who delays them
    #[command(flatten)]
    pub engine: EngineArgs,

    /// Do not cover child processes
    #[arg(long)]
    pub no_children: bool,

    /// Write all measurements and results as JSON (schema speed-bump/experiment/2); `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the report as a page for browsers, with figures; `-` is standard output. `report` makes the same
    /// page from the JSON
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write phases and slices as trace events, for Perfetto and other viewers; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub trace_events: Option<PathBuf>,

    /// Export for Prometheus
    #[command(flatten)]
    pub export: ExportArgs,

    /// Print errors, warnings and the report only
    #[arg(short, long)]
    pub quiet: bool,
}

/// A share of less than one, in per cent.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(str::trim_end).and_then(|number| number.parse::<f64>().ok());
    let number = number.ok_or_else(|| format!("`{text}` is not a share: write it in per cent, as 5%"))?;
    if number > 0.0 && number < 100.0 {
        Ok(number / 100.0)
    } else {
        Err(format!("`{text}` is not between 0% and 100%"))
    }
}

/// A share of less than one.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|_| format!("`{text}` is not a number between 0 and 1"))?;
    if number > 0.0 && number < 1.0 { Ok(number) } else { Err(format!("`{text}` is not between 0 and 1")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        assert_eq!(percent("5%"), Ok(0.05));
        assert_eq!(percent("0.5 %"), Ok(0.005));
        for text in ["5", "%", "0%", "100%", "-1%", "nan%", ""] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!(share("0.1"), Ok(0.1));
        for text in ["0", "1", "nan", "x"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
