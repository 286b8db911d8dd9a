//! The flags of `report`.

use std::path::PathBuf;

use clap::Args;

use crate::report::{
    condition::Condition,
    profile::{Limit, SortKey},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  # What a sweep found, once more; as a page for browsers; for a pull request
  speed-bump-ebpf report out.json
  speed-bump-ebpf report out.json --html out.html
  speed-bump-ebpf report out.json --markdown

  # Beside a trace of the kernel's, which was made with the same clock (trace-cmd record -C mono)
  speed-bump-ebpf report out.json --trace-events slices.json

  # What changed from one version to the next
  speed-bump-ebpf report before.json after.json

  # In continuous integration: fail if a function became the bottleneck, or worth more than before
  speed-bump-ebpf report out.json --fail-if 'worth_low(render_section) > 5%'
  speed-bump-ebpf report before.json after.json --fail-if 'worth_change_low(*) > 1%'

  # Own and cumulative times of a session, as a profiler has them; and for snakeviz
  sudo speed-bump-ebpf --pid 4711 -t '*/app.py:*' --delay 0 --times --duration 10s --json session.json
  speed-bump-ebpf report session.json --sort cumulative --limit 20
  speed-bump-ebpf report session.json --pstats session.prof

  # Who calls a function, and how long these calls take; the session was recorded with --callers as well
  speed-bump-ebpf report session.json --strip-dirs --callers render_section

Exit codes: 0; 2 if a file is no experiment, or a condition cannot be answered; 7 if one of --fail-if holds.
";

/// Flags of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// What `sweep --json` wrote, or `--json` with `--times`; `-` is standard input. Of two sweeps, what
    /// changed from the first to the second
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    pub files: Vec<PathBuf>,

    /// Exit with code 7 if this holds: `worth(NAME) > 5%`, `sensitivity(NAME) > 0.5`, `own(NAME) > 2ms`,
    /// `time_per_unit > 20ms`; `worth_low(NAME) > 5%` holds where that is shown. `*` in a name stands for
    /// anything. Of two files it is of the second, and `worth_change(NAME) > 1%` of both. Repeat for several
    #[arg(long = "fail-if", value_name = "CONDITION")]
    pub fail_if: Vec<Condition>,

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

    /// Print JSON, with the analysis done anew
    #[arg(long, group = "form")]
    pub json: bool,
    /// How a session's profile is shown
    #[command(flatten)]
    pub profile: ProfileArgs,
}

/// Flags of `report` for sessions with `--times`, by the words of Python's `pstats`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// Of a session: write its profile as a file that Python's `pstats`, snakeviz, gprof2dot and tuna read
    #[arg(long, value_name = "FILE", group = "form")]
    pub pstats: Option<PathBuf>,

    /// Of a session: sort functions by calls, cumulative, time, name, file, line, module, nfl, pcalls or
    /// stdname, or unambiguous beginnings of these; several, in turn, with commas
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub sort: Vec<SortKey>,

    /// Of a session: the other way round
    #[arg(long, requires = "sort")]
    pub reverse: bool,

    /// Of a session: files by their names alone; functions that are the same then are added up
    #[arg(long)]
    pub strip_dirs: bool,

    /// Of a session: so many functions (20), this share of them (0.1), or those that match an expression;
    /// repeat for several, which are taken in turn
    #[arg(long = "limit", value_name = "N|SHARE|REGEX")]
    pub limits: Vec<Limit>,

    /// Of a session with --callers: who calls the functions that match an expression, instead of the table
    #[arg(long, value_name = "REGEX")]
    pub callers: Option<Limit>,

    /// Of a session with --callers: what the functions that match an expression call, instead of the table
    #[arg(long, value_name = "REGEX")]
    pub callees: Option<Limit>,

    /// Of a session: add what another one counted; repeat for several
    #[arg(long, value_name = "FILE")]
    pub add: Vec<PathBuf>,
}

impl ProfileArgs {
    /// Whether there is any.
    pub fn is_asked_for(&self) -> bool {
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
