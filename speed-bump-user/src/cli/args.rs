//! The flags. Parser, help, man page and completions share one definition.

use std::{ffi::OsString, num::NonZeroU64, os::fd::RawFd, path::PathBuf, sync::OnceLock, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::{
    engine::{EngineChoice, bpf::object},
    python::entry_source::EntryChoice,
    units::{Nanos, Pid},
};

pub mod export;
pub mod report;
pub mod sweep;
pub mod units;

pub use export::ExportArgs;
pub use report::ReportArgs;
pub use sweep::SweepArgs;

const ABOUT: &str =
    "Make one function of a running process slower by an exact amount, and see whether it matters";

const EXAMPLES: &str = "\
Examples:
  # Delay every call of matching functions by 10 us, until Ctrl-C
  sudo speed-bump-ebpf --pid 4711 --targets targets.txt --delay 10us

  # Warm up 5 s, delay for 30 s, keep the numbers
  sudo speed-bump-ebpf --pid 4711 --targets targets.txt --delay 50us \\
      --start-after 5s --duration 30s --json session.json

  # List the selected functions, probe sites and costs; slows nothing down
  sudo speed-bump-ebpf list --pid 4711 --targets targets.txt

  # Start a program and cover it from its first instruction
  sudo speed-bump-ebpf run --targets targets.txt --delay 10us -- python3 app.py

  # Check what works on this machine and in this process
  sudo speed-bump-ebpf doctor --pid 4711

A targets file has one target per line, `[kind:]module_pattern:name_pattern [key=value ...]`:
  # Python functions, by file and qualified name, or by module
  */vllm/worker/*:ModelRunner.*
  json.decoder:* delay=2us frequency=10
  # only calls from `handle`
  */app.py:burn caller=handle
  # native functions
  native:*/libcuda.so*:cuLaunch*
  # USDT probes
  usdt:*/libc.so.6:libc:setjmp
  # not these
  !*:*.__repr__

Environment (defaults for the flags):
  SPEED_BUMP_TARGETS, SPEED_BUMP_DELAY_NS, SPEED_BUMP_FREQUENCY, SPEED_BUMP_START_MS,
  SPEED_BUMP_DURATION_MS

Exit codes:
  0  done: the time is over, a signal ended the session, or the process ended; everything is
     detached
  2  wrong flags, wrong targets file, or a process that cannot be a target
  3  --strict, and a target selects nothing
  4  a privilege is missing, the kernel or the target's build lacks something, or the report
     could not be written to the file of --json and is on standard error
  5  the process ended before anything was attached";

const RUN_EXAMPLES: &str = "\
Examples:
  # Cover a program from its first line on; print the report when the program has ended
  sudo speed-bump-ebpf run --targets targets.txt --delay 10us -- python3 app.py --port 8000

  # Run a start script as another user; let it warm up for 20 s, then delay for a minute
  sudo speed-bump-ebpf run --user www-data --targets targets.txt --start-after 20s --duration 60s \\
      -- nice ./start.sh

The tool passes these signals on to the command: SIGINT, SIGTERM, SIGHUP,
SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH. A terminal sends its signals to both.

Exit codes:
  that of the command; 128+N if signal N ended it; 4 if it succeeded and the report could not be written
  126   the command cannot be executed
  127   the command was not found
  2, 4  as without `run`: the command was not started";

const SET_EXAMPLES: &str = "\
Examples:
  # Change the delay of a target in the only session
  sudo speed-bump-ebpf set '*/app.py:handle' delay=20us

  # Change the delay of one selected function, in one of several sessions
  sudo speed-bump-ebpf set --session 4711 '*/app.py:handle' delay=0";

/// Version, commit and BPF object, for bug reports.
fn long_version() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        format!(
            "{} (commit {}, BPF object {} {:08x})",
            env!("CARGO_PKG_VERSION"),
            speed_bump_session::COMMIT,
            std::env::consts::ARCH,
            object::checksum()
        )
    })
}

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "speed-bump-ebpf",
    version,
    long_version = long_version(),
    about = ABOUT,
    after_long_help = EXAMPLES,
    after_help = "`--help` shows examples, the targets file, and exit codes.",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do; attach if no command is given
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Flags of attaching
    #[command(flatten)]
    pub attach: AttachArgs,

    /// Print more on standard error. Given twice, print every step, and why calls are not delayed
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what each target selects, where the probes would go and what they would cost; attach nothing. To
    /// find the functions of a Python process, load the helper there for a moment, unless --no-inject is
    /// given
    List(ListArgs),
    /// Start a command and cover it from its first instruction, with the processes that it starts
    #[command(after_long_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Let another program drive the tool: lines of JSON with requests on standard input and answers on
    /// standard output (schema speed-bump/agent/1)
    Agent,
    /// Find out which functions matter: delay each one in short slices, in random order, and measure the time
    /// per unit of work
    #[command(after_long_help = sweep::EXAMPLES)]
    Sweep(Box<SweepArgs>),
    /// Show the results of a sweep from its JSON
    #[command(after_long_help = report::EXAMPLES)]
    Report(ReportArgs),
    /// Change delays or targets in a running session, without attaching again
    #[command(after_long_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// List the running sessions
    Sessions(SessionsArgs),
    /// Check kernel, privileges and, with --pid, what would work in that process
    Doctor(DoctorArgs),
    /// Measure what a probe costs on this machine, for each kind of instruction
    Calibrate(CalibrateArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the man page, in roff
    Man,
}

/// Which processes.
#[derive(Debug, Args)]
pub struct ProcessArgs {
    /// Process to attach to; repeat for several
    #[arg(short = 'p', long = "pid", value_name = "PID", required = true)]
    pub pids: Vec<Pid>,

    /// Fail before attaching if a target selects nothing
    #[arg(long)]
    pub strict: bool,
}

/// Which functions.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Targets file; `-` is standard input [env: SPEED_BUMP_TARGETS]
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,

    /// A target, written like a line of a targets file, instead of a file; repeat for several
    #[arg(short = 't', long = "target", value_name = "PATTERN", conflicts_with = "targets")]
    pub lines: Vec<String>,
}

/// How calls are seen, and who delays them.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Entry source, how Python calls are seen: `helper`, `perf-map`, `usdt`, or `auto`, the first of these
    /// that works
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub entry: EntryChoice,

    /// Who spins. `helper`: the helper in the process, without a trap, for Python functions. `bpf`: the BPF
    /// program in the kernel. `signal`: the helper, on a signal from the BPF program. `kmod`: the kernel
    /// module speed_bump, which must be loaded, for native functions only. `auto`: `helper` for Python
    /// functions if the helper is loaded; for all others `bpf`, or `signal` for delays above 1ms if the
    /// helper is loaded
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    pub engine: EngineChoice,

    /// With `--engine kmod`: also accept upstream's module (speed-bump-native-kmod). With that module a
    /// program that the kernel starts hangs for ever if it calls a selected function. So select only
    /// functions of your own programs
    #[arg(long)]
    pub accept_upstream_module: bool,

    /// Never load the helper into a process
    #[arg(long)]
    pub no_inject: bool,

    /// How long to wait until a thread of the process can be stopped safely. That thread loads the helper
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "2s")]
    pub inject_timeout: Duration,
}

/// Which functions, and how they are delayed.
#[derive(Debug, Args)]
pub struct SelectArgs {
    /// Which functions
    #[command(flatten)]
    pub which: TargetArgs,

    /// Delay of each call, such as 500ns, 10us, 1.5ms, 2s; at most 10s [env: SPEED_BUMP_DELAY_NS]
    /// [default: 1us]
    #[arg(long, value_name = "TIME", value_parser = delay)]
    pub delay: Option<Nanos>,

    /// How calls are seen, and who delays them
    #[command(flatten)]
    pub engine: EngineArgs,

    /// Accept a targets file that has no targets
    #[arg(long)]
    pub allow_empty: bool,

    /// Time the calls of selected functions, like a profiler: own and cumulative time. Own time does not
    /// include other selected functions; it includes delays. Python functions need the engine `helper`, and a
    /// call costs some 50 ns more. A call of a native function costs a second trap when it returns. Some
    /// functions cannot be timed: `list` with this flag says which, and why
    #[arg(long)]
    pub times: bool,
}

/// Flags of the bare command.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Which processes
    #[command(flatten)]
    pub processes: ProcessArgs,

    /// Which functions
    #[command(flatten)]
    pub select: SelectArgs,

    /// How to delay them, and what to write
    #[command(flatten)]
    pub session: SessionArgs,
}

/// Flags of a session.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// Delay every Nth matching call of a target [env: SPEED_BUMP_FREQUENCY] [default: 1]
    #[arg(long, value_name = "N")]
    pub frequency: Option<NonZeroU64>,

    /// Delay nothing for this long after the attach, such as 500ms, 5s [env: SPEED_BUMP_START_MS] [default:
    /// 0]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub start_after: Option<Duration>,

    /// Delay for this long, then detach and exit; 0 is until stopped [env: SPEED_BUMP_DURATION_MS] [default:
    /// 0]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub duration: Option<Duration>,

    /// Cover present and future child processes too, and the programs that they execute (the default)
    #[arg(long, overrides_with = "no_children")]
    pub children: bool,

    /// Do not cover child processes
    #[arg(long)]
    pub no_children: bool,

    /// Write the report as JSON (schema speed-bump/session/1); `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Append the report so far to this file each second, as a line of JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json_lines: Option<PathBuf>,

    /// Export for Prometheus
    #[command(flatten)]
    pub export: ExportArgs,

    /// Write own and cumulative times as a profile for Python's `pstats`, snakeviz, gprof2dot and tuna; `-`
    /// is standard output
    #[arg(long, value_name = "FILE", requires = "times")]
    pub pstats: Option<PathBuf>,

    /// Record the callers of selected Python functions, for --pstats and `report --callers`. A call costs 20
    /// to 50 ns more than with --times alone
    #[arg(long, requires = "times")]
    pub callers: bool,

    /// When everything is attached, write a line to this descriptor and close it
    #[arg(long, value_name = "N")]
    pub ready_fd: Option<RawFd>,

    /// Print errors and warnings only
    #[arg(short, long)]
    pub quiet: bool,
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Which functions
    #[command(flatten)]
    pub select: SelectArgs,

    /// How to delay them, and what to write
    #[command(flatten)]
    pub session: SessionArgs,

    /// Run the command as this user, with its groups, HOME, USER and LOGNAME; the tool itself needs root
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Flags of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Which processes
    #[command(flatten)]
    pub processes: ProcessArgs,

    /// Which functions
    #[command(flatten)]
    pub select: SelectArgs,

    /// Show all functions, not only the first ones of each target
    #[arg(long)]
    pub all: bool,

    /// Print JSON (schema speed-bump/list/1), with all functions
    #[arg(long)]
    pub json: bool,
}

/// Flags of `set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Process id of the session's tool (see `sessions`); not needed if only one session runs
    #[arg(long, value_name = "PID")]
    pub session: Option<Pid>,

    /// A target of the session, or a pattern that selects some of its functions
    #[arg(value_name = "PATTERN")]
    pub pattern: String,

    /// `delay=TIME`, `frequency=N` or both. With `caller=FUNCTION`, the pattern means only the target for
    /// calls from that function
    #[arg(value_name = "KEY=VALUE", required_unless_present_any = ["add", "drop"], value_parser = change)]
    pub options: Vec<String>,

    /// Add the pattern as a target of the session. It selects the functions that no other target selects
    #[arg(long, conflicts_with = "drop")]
    pub add: bool,

    /// Drop the target: stop delaying its functions, and remove its own probes
    #[arg(long, conflicts_with = "options")]
    pub drop: bool,
}

/// Flags of `sessions`.
#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// Print JSON instead of lines
    #[arg(long)]
    pub json: bool,
}

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Also check what would work in this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<Pid>,

    /// Print JSON instead of lines
    #[arg(long)]
    pub json: bool,
}

/// Flags of `calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Flags of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

pub(super) fn delay(text: &str) -> Result<Nanos, String> {
    let delay = time(text, "us")?;
    if delay > Nanos::MAX_DELAY {
        return Err(format!("{delay} is more than the longest delay, {}", Nanos::MAX_DELAY));
    }
    Ok(delay)
}

/// Checks an option of `set`. Times need units, as everywhere on the command line.
fn change(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some(("delay", time)) => delay(time).map(|_| text.to_owned()),
        Some(("frequency", _)) => Ok(text.to_owned()),
        Some(("caller", _)) => Ok(text.to_owned()),
        _ => Err("expected delay=TIME, frequency=N or caller=FUNCTION".to_owned()),
    }
}

/// A span of wall time.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    time(text, "s").map(Into::into)
}

/// Parses a time. Only 0 may have no unit: 5 could mean anything. The error proposes `unit`.
fn time(text: &str, unit: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error: crate::units::NanosError| error.to_string())?;
    if time.0 > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{text}` has no unit: write {text}{unit} or {text}ms"));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn delays_are_bounded_and_spans_need_units() {
        assert_eq!(delay("10s"), Ok(Nanos::MAX_DELAY));
        assert!(delay("10.1s").is_err());
        assert_eq!(delay("0"), Ok(Nanos(0)));
        assert_eq!(delay("1"), Err("`1` has no unit: write 1us or 1ms".to_owned()));
        assert_eq!(span("0"), Ok(Duration::ZERO));
        assert_eq!(span("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(span("5").is_err());
    }
}
