//! Names of the maps and programs in the BPF object, and their compiled-in sizes.
//!
//! The loader overrides the sizes with what the session needs before it creates the maps.

/// One [`Control`](crate::Control): the session's window, and whether it goes on. The loader maps it.
pub const CONTROL: &str = "CONTROL";
/// Two [`Coldness`](crate::Coldness): of the way in, and of the way back.
pub const COLDNESS: &str = "COLDNESS";
/// One [`Telltale`](crate::Telltale).
pub const TELLTALE: &str = "TELLTALE";
/// [`Policy`](crate::Policy) by [`Policy::row`](crate::Policy::row). The policies of targets have the numbers
/// of their targets; after them come those of functions. The loader maps it.
pub const POLICIES: &str = "POLICIES";
/// `u64` by policy: matching calls inside the window, the counter behind `frequency`.
pub const COUNTERS: &str = "COUNTERS";
/// [`SiteArguments`](crate::SiteArguments) by site index.
pub const SITES: &str = "SITES";
/// [`FunctionEntry`](crate::FunctionEntry) by function index. The loader maps it: each takes 8 bytes.
pub const FUNCTIONS: &str = "FUNCTIONS";
/// [`FunctionStats`](crate::FunctionStats) by [`FunctionStats::position`](crate::FunctionStats::position).
/// The loader maps it. No per-CPU array: the kernel takes a microsecond and more to allocate each element of
/// one.
pub const STATS: &str = "STATS";
/// [`Histogram`](crate::Histogram) by [`FunctionStats::histogram`](crate::FunctionStats::histogram). The
/// loader maps it.
pub const HISTOGRAMS: &str = "HISTOGRAMS";
/// One `u64`: how many histograms are taken, or were requested.
pub const HISTOGRAMS_TAKEN: &str = "HISTOGRAMS_TAKEN";
/// [`FunctionTimes`](crate::times::FunctionTimes) by function index, where native functions are timed. The
/// loader maps it.
pub const TIMES: &str = "TIMES";
/// [`CallStack`](crate::CallStack) by process and thread, as `bpf_get_current_pid_tgid` has them: the calls
/// of timed native functions in progress. Those of threads that are gone make place for others.
pub const CALLS: &str = "CALLS";
/// One empty [`CallStack`](crate::CallStack), for threads that have none.
pub const NO_CALLS: &str = "NO_CALLS";
/// [`Bucket`](crate::Bucket) by process and thread, as `bpf_get_current_pid_tgid` has them: how much delay
/// the bound of the session leaves each. Those of threads that were not delayed for long make place for
/// others.
pub const BUCKETS: &str = "BUCKETS";
/// [`CallerRange`](crate::CallerRange): the code of callers that targets for native functions name, process
/// by process.
pub const CALLER_RANGES: &str = "CALLER_RANGES";
/// [`CallerSpan`](crate::CallerSpan) by [`Cookie::process`](crate::Cookie::process). A process without one is
/// not covered yet, and its calls of functions with such targets are not counted.
pub const CALLER_SPANS: &str = "CALLER_SPANS";
/// The index of a process by its thread-group id as the initial PID namespace numbers it: for programs
/// without cookies, and for processes that execute another program.
pub const CALLER_PROCESSES: &str = "CALLER_PROCESSES";
/// [`CallerLineSets`](crate::CallerLineSets) by [`SiteArguments::callers`](crate::SiteArguments::callers).
pub const CALLER_LINES: &str = "CALLER_LINES";
/// Function index by [`TrampolineKey`](crate::TrampolineKey).
pub const TRAMPOLINES: &str = "TRAMPOLINES";
/// Code-location index by [`PythonKey`](crate::PythonKey).
pub const PYTHON_KEYS: &str = "PYTHON_KEYS";
/// [`Verdict`](crate::Verdict) as `u32` by code-location index.
pub const PYTHON_VERDICTS: &str = "PYTHON_VERDICTS";
/// `u64` by code-location index: calls seen before the loader's verdict.
pub const PYTHON_PENDING: &str = "PYTHON_PENDING";
/// `u8` by thread-group id as the initial PID namespace numbers it: processes whose forks are followed.
pub const TRACKED: &str = "TRACKED";
/// Ring buffer of [`Event`](crate::Event).
pub const EVENTS: &str = "EVENTS";
/// Ring buffer of [`Event`](crate::Event): execs of processes that wait to be traced.
pub const HELD: &str = "HELD";
/// One `u64`: how many of these processes wait.
pub const HOLDERS: &str = "HOLDERS";
/// [`Handshake`](crate::Handshake) by thread-group id as the initial PID namespace numbers it.
pub const HANDSHAKES: &str = "HANDSHAKES";
/// `u64` by [`Fault`] position: things that went wrong, for the loader to report.
pub const FAULTS: &str = "FAULTS";

/// Per-CPU [`RateLimit`](crate::RateLimit) by [`NotDelayed`](crate::NotDelayed), in the object that logs.
pub const LOG_LIMITS: &str = "LOG_LIMITS";
/// What `aya-log` sends to the loader. Only in the object that logs.
pub const LOGS: &str = "AYA_LOGS";

/// Program for native functions and USDT probes: the cookie's site names the function.
pub const PROGRAM_SITE: &str = "site";
/// [`PROGRAM_SITE`] where calls are timed.
pub const PROGRAM_SITE_TIMED: &str = "site_timed";
/// [`PROGRAM_SITE`] for native functions with targets for some callers alone.
pub const PROGRAM_SITE_CALLERS: &str = "site_callers";
/// [`PROGRAM_SITE_CALLERS`] where calls are timed.
pub const PROGRAM_SITE_CALLERS_TIMED: &str = "site_callers_timed";
/// [`PROGRAM_SITE_CALLERS`] for kernels before 5.17.
pub const PROGRAM_SITE_CALLERS_BOUNDED: &str = "site_callers_bounded";
/// Program for the instructions by which timed native functions are left.
pub const PROGRAM_SITE_LEFT: &str = "site_left";
/// Program for CPython's evaluator under `-X perf`: the return address names the function.
pub const PROGRAM_TRAMPOLINE: &str = "trampoline";
/// Program for CPython's `function__entry`: file, name and line name the function.
pub const PROGRAM_PYTHON_USDT: &str = "python_usdt";
/// Program for the helper's stub: the registers hold the numbers of the function and of its target.
pub const PROGRAM_PYTHON_HELPER: &str = "python_helper";
/// [`PROGRAM_SITE`] for kernels before 5.17.
pub const PROGRAM_SITE_BOUNDED: &str = "site_bounded";
/// [`PROGRAM_PYTHON_HELPER`] for kernels before 5.17.
pub const PROGRAM_PYTHON_BOUNDED: &str = "python_bounded";
/// Program at `sched_process_fork`.
pub const PROGRAM_FORK: &str = "process_fork";
/// Program at `sched_process_exec`.
pub const PROGRAM_EXEC: &str = "process_exec";
/// [`PROGRAM_EXEC`] for kernels before 5.17.
pub const PROGRAM_EXEC_BOUNDED: &str = "exec_bounded";

/// Positions in [`FAULTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// An event did not fit into the ring buffer.
    EventLost = 0,
    /// A Python call whose file or name could not be read (page not resident).
    Unreadable = 1,
    /// A Python call of a code location beyond the capacity of the maps.
    NoRoom = 2,
    /// A timed call was over without its end having been seen.
    Unmatched = 3,
    /// A timed call was nested too deep, or there was no room for its thread.
    TooDeep = 4,
}

/// Number of [`Fault`] positions.
pub const FAULT_COUNT: u32 = 5;

/// Compiled-in capacity of [`TRACKED`]: the processes of one session, descendants included.
pub const TRACKED_CAPACITY: u32 = 4096;
/// Compiled-in size of [`CALLER_RANGES`]: the ranges of all processes of a session.
pub const CALLER_RANGES_CAPACITY: u32 = 32_768;
/// Compiled-in capacity of [`PYTHON_KEYS`]: distinct code locations of one session.
pub const PYTHON_CAPACITY: u32 = 131_072;
/// Compiled-in size of [`EVENTS`] in bytes.
pub const EVENTS_BYTES: u32 = 1 << 20;
/// Compiled-in size of [`HELD`] in bytes: a page of every processor's.
pub const HELD_BYTES: u32 = 1 << 16;
