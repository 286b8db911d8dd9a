//! The flags of `report`.

use std::path::PathBuf;

use clap::Args;

use crate::report::condition::Condition;

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

Exit codes: 0; 2 if a file is no experiment, or a condition cannot be answered; 7 if one of --fail-if holds.
";

/// Flags of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// What `sweep --json` wrote; `-` is standard input. Of two, what changed from the first to the second
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
}
