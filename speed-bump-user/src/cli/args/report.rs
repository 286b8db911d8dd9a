//! The flags of `report`.

use std::path::PathBuf;

use clap::Args;

use super::sweep::{percent, share};
use crate::report::{
    condition::Condition,
    profile::{Limit, SortKey},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  # Print the results of a sweep; write them as a page for browsers; for a pull request
  speed-bump-ebpf report out.json
  speed-bump-ebpf report out.json --html out.html
  speed-bump-ebpf report out.json --markdown

  # With other rules: clients send the next request at once, and a function matters from 3 % on
  speed-bump-ebpf report out.json --closed-loop --worth 3%

  # Slices for a trace viewer; align them with a kernel trace of the same clock (trace-cmd record -C mono)
  speed-bump-ebpf report out.json --trace-events slices.json

  # Compare two versions
  speed-bump-ebpf report before.json after.json

  # In continuous integration: fail if a function is worth too much, or more than before
  speed-bump-ebpf report out.json --fail-if 'worth_low(render_section) > 5%'
  speed-bump-ebpf report before.json after.json --fail-if 'worth_change_low(*) > 1%'

  # Own and cumulative times of a session, like a profiler; and for snakeviz
  sudo speed-bump-ebpf --pid 4711 -t '*/app.py:*' --delay 0 --times --duration 10s --json session.json
  speed-bump-ebpf report session.json --sort cumulative --limit 20
  speed-bump-ebpf report session.json --pstats session.prof

  # Who calls a function, and how long these calls take; the session needs --callers too
  speed-bump-ebpf report session.json --strip-dirs --callers render_section

Exit codes: 0; 2 if a file is no experiment, or a condition is unknown; 7 if a condition of --fail-if holds.
";

/// Flags of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// JSON of `sweep --json`, or of a session with `--times`; `-` is standard input. With two sweeps, shows
    /// what changed from the first to the second
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    pub files: Vec<PathBuf>,

    /// Exit with code 7 if this holds: `worth(NAME) > 5%`, `sensitivity(NAME) > 0.5`, `own(NAME) > 2ms`,
    /// `time_per_unit > 20ms`. `worth_low(NAME) > 5%` is about the lower end of the interval. `*` in a name
    /// matches any text. With two files, conditions are about the second, and `worth_change(NAME) > 1%` about
    /// both. Repeat for several
    #[arg(long = "fail-if", value_name = "CONDITION")]
    pub fail_if: Vec<Condition>,

    /// Judge sweeps anew by these rules
    #[command(flatten)]
    pub rules: RulesArgs,

    /// Write a page for browsers, with figures, and print nothing; `-` is standard output
    #[arg(long, value_name = "FILE", group = "form")]
    pub html: Option<PathBuf>,

    /// Write phases and slices as trace events, for Perfetto and other viewers, and print nothing; `-` is
    /// standard output
    #[arg(long, value_name = "FILE", group = "form")]
    pub trace_events: Option<PathBuf>,

    /// Print Markdown, for a pull request
    #[arg(long, group = "form")]
    pub markdown: bool,

    /// Print the functions as CSV, with all digits
    #[arg(long, group = "form")]
    pub csv: bool,

    /// Print JSON, with a new analysis
    #[arg(long, group = "form")]
    pub json: bool,
    /// How a session's profile is shown
    #[command(flatten)]
    pub profile: ProfileArgs,
}

/// Flags of `report` that replace rules of the sweep.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// Judge the sweep as if clients had sent the next request as soon as they had an answer
    #[arg(long)]
    pub closed_loop: bool,

    /// Judge the sweep by this --worth instead of its own
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub worth: Option<f64>,

    /// Judge the sweep by this --threshold instead of its own
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub threshold: Option<f64>,
}

/// Flags of `report` for sessions with `--times`, named like the methods of Python's `pstats`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// For a session: write its profile for Python's `pstats`, snakeviz, gprof2dot and tuna
    #[arg(long, value_name = "FILE", group = "form")]
    pub pstats: Option<PathBuf>,

    /// For a session: sort functions by calls, cumulative, time, name, file, line, module, nfl, pcalls or
    /// stdname, or an unambiguous prefix of these; separate several by commas
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub sort: Vec<SortKey>,

    /// For a session: reverse the order
    #[arg(long, requires = "sort")]
    pub reverse: bool,

    /// For a session: show file names without folders, and add up functions that become equal
    #[arg(long)]
    pub strip_dirs: bool,

    /// For a session: show only this many functions (20), this share of them (0.1), or those that match an
    /// expression; repeat to apply several, one after the other
    #[arg(long = "limit", value_name = "N|SHARE|REGEX")]
    pub limits: Vec<Limit>,

    /// For a session with --callers: instead of the table, show who calls the functions that match this
    /// expression
    #[arg(long, value_name = "REGEX")]
    pub callers: Option<Limit>,

    /// For a session with --callers: instead of the table, show what the functions that match this expression
    /// call
    #[arg(long, value_name = "REGEX")]
    pub callees: Option<Limit>,

    /// For a session: add the counters of another session; repeat for several
    #[arg(long, value_name = "FILE")]
    pub add: Vec<PathBuf>,
}

impl ProfileArgs {
    /// Whether any of these flags was given.
    pub fn is_given(&self) -> bool {
        self.pstats.is_some()
            || !self.sort.is_empty()
            || self.reverse
            || self.strip_dirs
            || !self.limits.is_empty()
            || self.callers.is_some()
            || self.callees.is_some()
            || !self.add.is_empty()
    }
}
