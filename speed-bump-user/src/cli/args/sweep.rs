//! The flags of `sweep`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{ExportArgs, TargetArgs, WayArgs, delay, span, units::UnitArgs};
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

  # The same for the functions that take time, whichever they are
  sudo speed-bump-ebpf sweep --pid 4711 --progress '*/app.py:handle'

  # The same, where a request begins with one function and ends with another
  sudo speed-bump-ebpf sweep --pid 4711 --progress '*/app.py:accept..*/app.py:answer'

  # What a benchmark takes, and how many errors there are meanwhile
  sudo speed-bump-ebpf sweep --pid 4711 --bench './bench.sh' --bench-regex 'requests/sec: ([0-9.]+)' \\
      --metric prometheus:http://localhost:8000/metrics#errors_total

  # Keep what was measured, and look at it again
  sudo speed-bump-ebpf sweep --pid 4711 -t '*/app.py:*' --progress '*/app.py:handle' --json out.json
  speed-bump-ebpf report out.json

What the columns mean:
  calls/unit     calls of the function per unit of work, without delays
  own/unit       its own time per unit, without other selected functions
  sensitivity    the share of added time that shows up in the time per unit, with a 95 % interval:
                 1 is on the critical path, 0 is hidden. N workers beside each other share what each
                 of them loses: 1/N
  worth at most  sensitivity × own time, as a share of the time per unit: what making the function
                 free would gain
  verdict        `matters` and `does not matter` are shown, each with an error of 5 % at most;
                 all else is undecided

Exit codes: 0 also where nothing is decided; 6 if a guard ended it; 8 if the load went away, or what
is counted is no measure of work; else as without a command. What was measured until then is reported
in each of these cases, and after Ctrl-C.";

/// Flags of `sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Process to experiment on; repeat for several
    #[arg(short = 'p', long = "pid", value_name = "PID", required = true)]
    pub pids: Vec<Pid>,

    /// Which functions
    #[command(flatten)]
    pub which: TargetArgs,

    /// What is counted
    #[command(flatten)]
    pub units: UnitArgs,

    /// End the experiment, with all delays, when this does not hold: `http://HOST/PATH` answers with success,
    /// `command:CMD` succeeds, `prometheus:URL#name<5` stays within its bound, or what the unit's metric says
    /// does: `rate>100`, `latency<20ms`, `p50<10ms`, `p99<50ms`, of the last second or 100 units. Looked at
    /// each 100 ms; repeat for several
    #[arg(long = "guard", value_name = "CONDITION")]
    pub guards: Vec<Condition>,

    /// How long all of it may take, with preparation
    #[arg(long = "for", value_name = "TIME", value_parser = span, default_value = "120s")]
    pub time: Duration,

    /// How long to wait for load that went away meanwhile, without delays, until the experiment ends without
    /// a verdict
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "30s")]
    pub wait_load: Duration,

    /// How long a slice of constant delays is [default: 40 units of work, at least 40 to 150ms]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub slice: Option<Duration>,

    /// The seed of the random order [default: another one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// A function that is worth less than this share of a unit's time does not matter
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%")]
    pub worth: f64,

    /// Nor does one of whose added time less than this share shows up, unless it seems to be worth that
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.1")]
    pub threshold: f64,

    /// The most that a unit of work may be slowed down by; it is looked at each 100 ms
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "20%")]
    pub max_slowdown: f64,

    /// The longest delay of a single call
    #[arg(long, value_name = "TIME", value_parser = delay, default_value = "10ms")]
    pub longest_call: Nanos,

    /// The clients ask again as soon as they have an answer, as benchmark tools do. Without this, a function
    /// is said not to matter only where another one is shown to: if requests come when they like, throughput
    /// is what they set, and no function changes it
    #[arg(long)]
    pub closed_loop: bool,

    /// Look at all functions one by one, without a screen of many at once
    #[arg(long)]
    pub per_function: bool,

    /// Look at functions together: by class, file, folder or thread. Each is delayed by its part of the
    /// group's own time
    #[arg(long, value_name = "BY")]
    pub group: Option<GroupBy>,

    /// Added time per unit in the last phase, as shares of a unit's time, in turn [default: half, once and
    /// twice 45 % of --max-slowdown, and more where little shows]
    #[arg(long, value_name = "PERCENT,...", value_parser = percent, value_delimiter = ',')]
    pub doses: Vec<f64>,

    /// Print what would be done, and how sure it would be, and do nothing but count and time calls for a
    /// while
    #[arg(long)]
    pub plan: bool,

    /// How calls are seen, and who delays them
    #[command(flatten)]
    pub way: WayArgs,

    /// Do not cover child processes
    #[arg(long)]
    pub no_children: bool,

    /// Write everything that was measured, and what follows from it, as JSON (schema
    /// speed-bump/experiment/1); `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the report as a page for browsers, with figures; `-` is standard output. `report` makes it again
    /// from the JSON
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write phases and slices as trace events, for Perfetto and other viewers; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub trace_events: Option<PathBuf>,

    /// Numbers for others
    #[command(flatten)]
    pub export: ExportArgs,

    /// Print errors, warnings and the report only
    #[arg(short, long)]
    pub quiet: bool,
}

/// A share of less than one, in per cent.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(str::trim_end).and_then(|number| number.parse::<f64>().ok());
    let number = number.ok_or_else(|| format!("`{text}` is not a share: write it in per cent, as 5%"))?;
    if number > 0.0 && number < 100.0 {
        Ok(number / 100.0)
    } else {
        Err(format!("`{text}` is not between 0% and 100%"))
    }
}

/// A share of less than one.
fn share(text: &str) -> Result<f64, String> {
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
