//! The control block: the memory that the loader and the helper in a Python process share.
//!
//! One memfd a session and process, mapped by both. It begins with [`ControlBlock`]; after it come the
//! selector (what the loader compiled the targets to), the records of the functions that the helper found,
//! an index to find them by, and their names. Offsets in it count from the start of the block.
//!
//! Both sides treat what the other wrote as untrusted: an offset or a length that does not fit is a fault,
//! never an access. A forked child shares its parent's block, so whatever the helper adds to it is added with
//! atomics.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::{Control, Histogram};

/// The first eight bytes of a block.
pub const MAGIC: u64 = u64::from_le_bytes(*b"spdbump\0");
/// The layout described here. A resident helper of another version is not reused.
pub const VERSION: u32 = 13;

/// Bytes of the largest block. The helper reserves addresses for it, in powers of two.
pub const LARGEST_BLOCK: usize = 256 << 20;

/// How often the loader increments [`ControlBlock::heartbeat`].
pub const HEARTBEAT_EVERY_MS: u32 = 100;
/// How often the helper checks the heartbeat and [`ControlBlock::command`].
pub const LOOK_EVERY_MS: u32 = 200;
/// How many checks in a row must find the same heartbeat before the helper takes the loader for dead. We
/// count checks and not time: if the machine is held up, the helper is held up as well.
pub const LOOKS_UNTIL_DEAD: u32 = 4;

/// What the loader wants of the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HelperCommand {
    /// Make calls of selected functions visible.
    Run = 0,
    /// Find the selected functions that are loaded, and nothing else.
    Survey = 1,
    /// Undo everything, and end the thread.
    Leave = 2,
    /// As [`HelperCommand::Run`], in a program that has not reached its first instruction yet: there is no
    /// thread until Python is initialised, and calls are visible from that very moment on.
    RunFromStart = 3,
    /// Handle the signals of [`ControlBlock::signals`], and nothing else: the program need not have a Python.
    HandleSignals = 4,
}

/// How far the helper is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nobody has read the block yet.
    Fresh = 0,
    /// The thread waits for the interpreter.
    Waiting = 1,
    /// The selected functions that were loaded are in the table; calls are visible, if that was asked for.
    Active = 2,
    /// Everything is undone.
    Left = 3,
    /// See [`ControlBlock::failure`]; everything is undone.
    Failed = 4,
}

/// Which stub the helper runs into for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StubForm {
    /// A nop of one byte: cheap on every kernel.
    Nop = 0,
    /// A nop of five bytes: optimised since Linux 6.18, single-stepped before.
    Nop5 = 1,
}

/// Why the helper failed: [`ControlBlock::failure`] by number. The text in
/// [`ControlBlock::failure_text`] has the details, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Failure {
    /// The helper did not fail.
    None = 0,
    /// Not a block, or one of another version.
    BadBlock = 1,
    /// The selector cannot be read.
    BadSelector = 2,
    /// The process has no CPython, or lacks a function that the helper needs.
    NoPython = 3,
    /// A version of CPython that the helper does not know.
    UnknownVersion = 4,
    /// The interpreter is being finalised.
    Finalizing = 5,
    /// Every tool id of `sys.monitoring` is taken.
    NoToolId = 6,
    /// A call of Python's own API failed.
    Python = 7,
    /// The thread could not be started: the process may have no more of them.
    NoThread = 8,
    /// This build of CPython cannot be covered; the text says why.
    Unsupported = 9,
    /// A session runs in this process. Returned by the helper's function; never in a block.
    Busy = 10,
    /// The process may not map as much memory as is needed.
    NoMemory = 11,
    /// The block could not be mapped, for another reason than [`Failure::NoMemory`].
    NotMapped = 12,
    /// The program has no library for threads.
    NoThreads = 13,
    /// The program has no clock that delays could be measured by.
    NoClock = 14,
}

/// Bits of [`ControlBlock::notices`]: what the user should hear of.
pub mod notice {
    /// Another tool took our `sys.monitoring` tool id; calls are no longer visible.
    pub const TOOL_ID_LOST: u32 = 1;
    /// Another frame evaluation hook came after ours, calls it, and stays chained to it.
    pub const HOOK_COVERED: u32 = 2;
    /// There are sub-interpreters that are not covered; others are.
    pub const SUBINTERPRETERS: u32 = 4;
    /// The function table is full; later functions are not covered.
    pub const TABLE_FULL: u32 = 8;
    /// The qualified name of a function was not found; its plain name was matched.
    pub const NAME_UNSURE: u32 = 16;
    /// The loader's heartbeat stopped.
    pub const LOADER_GONE: u32 = 32;
    /// A thread came near the end of its C stack. While it was there, calls were not visible (in any thread
    /// on 3.11).
    pub const STACK_SHORT: u32 = 64;
    /// Another frame evaluation hook was in the place of ours for a while and did not call it: calls were not
    /// visible. See [`ControlBlock::hook_missed`](super::ControlBlock::hook_missed).
    pub const HOOK_MISSED: u32 = 128;
    /// A thread keeps the GIL while it sleeps, so that the helper waited long for it.
    pub const GIL_KEPT: u32 = 256;
    /// A child that was forked while the helper waited for the GIL could not begin by itself.
    pub const FORKED_UNCOVERED: u32 = 512;
    /// The targets of a function are for some callers alone, and the caller is not known: this build of
    /// CPython does not show it. Such calls count for targets that are for all callers.
    pub const CALLER_UNKNOWN: u32 = 1024;
}

/// Bits of [`ControlBlock::unlisted`]: why functions may be loaded that the helper does not list. They are
/// known once they are called.
pub mod unlisted {
    /// The program has frozen objects (`gc.freeze()`), and this build does not show which.
    pub const FROZEN: u32 = 1;
    /// There are sub-interpreters, which may have functions of their own.
    pub const ELSEWHERE: u32 = 2;
    /// A build without a GIL does not show all of its functions.
    pub const WITHOUT_GIL: u32 = 4;
}

/// Who counts and delays the calls that the helper makes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Delays {
    /// Whoever has a probe on the stub.
    AtStub = 0,
    /// The helper itself.
    InPlace = 1,
}

/// What the helper measures time with. All times in the block that the helper uses are in units of this
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Clock {
    /// The processor's counter: the TSC, `cntvct_el0`.
    Counter = 0,
    /// ns of `CLOCK_MONOTONIC`, as the process has it.
    Monotonic = 1,
}

/// [`ControlBlock::units_per_ns`] of a clock that counts ns.
pub const UNIT_PER_NS: u64 = 1 << 32;

/// How many signals a session can use, each for one delay.
pub const SIGNALS: usize = 16;

/// `SIGURG`, on all architectures that the tool runs on (include/uapi/asm-generic/signal.h): unlike a
/// real-time signal, it has no effect if there is no handler (any more).
pub const HARMLESS_SIGNAL: u32 = 23;

/// A signal, and what the helper does on it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SignalSlot {
    /// Its number; 0: the slot is free.
    pub number: AtomicU32,
    /// Written by the helper: a [`Handling`].
    pub handling: AtomicU32,
    /// How long the helper spins, in ns of `CLOCK_MONOTONIC`.
    pub spin_ns: AtomicU64,
}

/// Whether a signal is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Handling {
    /// The helper has not checked yet.
    Unknown = 0,
    /// By the helper.
    Ours = 1,
    /// The program handles or ignores it itself; it was left alone.
    Theirs = 2,
}

/// If the heartbeat stands still for this long, in ns, a spin in flight ends: the loader is gone.
pub const SPIN_WITHOUT_LOADER_NS: u64 = 1_000_000_000;

/// Bytes of [`ControlBlock::failure_text`].
pub const FAILURE_TEXT_BYTES: usize = 192;

/// The head of the block.
///
/// Fields are written by the loader before the helper is called, unless they say otherwise.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ControlBlock {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// A [`StubForm`].
    pub stub_form: AtomicU32,
    /// Bytes of the whole block.
    pub size: AtomicU64,
    /// Where the selector of [`ControlBlock::generation`] is. The loader may change these three in a live
    /// session: first the bytes (in a place that the last selector does not use), then offset and length,
    /// then the generation.
    pub selector_offset: AtomicU64,
    /// Its length in bytes.
    pub selector_length: AtomicU64,
    /// Which selector it is; starts at 1. A change makes the helper judge everything anew.
    pub generation: AtomicU32,
    /// A [`HelperCommand`].
    pub command: AtomicU32,
    /// A futex (shared): incremented and woken after a change of command or generation.
    pub bell: AtomicU32,
    /// Incremented by the loader as long as it lives.
    pub heartbeat: AtomicU32,
    /// Where the [`FunctionRecord`]s are.
    pub functions_offset: AtomicU64,
    /// How many records of functions there can be.
    pub functions_capacity: AtomicU32,
    /// Slots of the index, a power of two; at least twice the capacity.
    pub index_slots: AtomicU32,
    /// Where the index is: `AtomicU32` slots, 0 or a function's number + 1; for the helper alone.
    pub index_offset: AtomicU64,
    /// Where the names are, in bytes from the beginning of the block.
    pub names_offset: AtomicU64,
    /// How many bytes of names there can be.
    pub names_capacity: AtomicU64,

    /// Written by the helper: a [`State`].
    pub state: AtomicU32,
    /// Written by the helper: a [`Failure`].
    pub failure: AtomicU32,
    /// Written by the helper: bits of [`notice`].
    pub notices: AtomicU32,
    /// Written by the helper: the generation that everything has been judged by.
    pub applied_generation: AtomicU32,
    /// Written by the helper: records handed out; more than the capacity when the table overflowed. A record
    /// counts when its `ready` is set.
    pub functions: AtomicU32,
    /// Written by the helper: CPython's `PY_VERSION_HEX`.
    pub python_version: AtomicU32,
    /// Written by the helper: bytes of names handed out.
    pub names: AtomicU64,
    /// Written by the helper: functions judged in the survey of what is loaded.
    pub surveyed: AtomicU64,
    /// Written by the helper: NUL-padded UTF-8.
    pub failure_text: FailureText,

    /// What the session's signals mean. In use while the command is not [`HelperCommand::Leave`]: then a
    /// spin in flight ends.
    pub signals: [SignalSlot; SIGNALS],
    /// Written by the helper: the address of its signal handler, once it has dealt with all of
    /// [`ControlBlock::signals`].
    pub handler: AtomicU64,
    /// 1: no signal of the session is on its way, and none will be sent: the helper gives the signals back
    /// when it leaves. As long as it is 0, the helper's handlers stay, except that of [`HARMLESS_SIGNAL`]:
    /// any other signal without a handler ends the process.
    pub signals_over: AtomicU32,
    /// A [`Delays`].
    pub delays: AtomicU32,
    /// A [`Clock`].
    pub clock: AtomicU32,
    /// 1: calls in forked children, which share the block, are counted and delayed too.
    pub children: AtomicU32,
    /// Units of the clock in a ns; [`UNIT_PER_NS`] is 1.
    pub units_per_ns: AtomicU64,
    /// Where the [`Calls`] are, one for each record of a function.
    pub calls_offset: AtomicU64,
    /// Where the rows of policies are, as words: see [`Policy::to_words`](crate::Policy::to_words).
    pub policies_offset: AtomicU64,
    /// Where the [`Turns`] are that `frequency` uses, one for each policy.
    pub counters_offset: AtomicU64,
    /// Where the histograms of delays are, one for each record of a function; see [`DelayCounts`].
    pub histograms_offset: AtomicU64,
    /// How many policies there can be.
    pub policies_capacity: AtomicU32,
    /// Written by the helper: the cost of a call that is delayed by 0, in units of the clock.
    pub floor: AtomicU32,
    /// A [`Control`], word by word, in units of the clock; the loader changes it at any time.
    pub control: [AtomicU64; Control::WORDS],
    /// Where the [`TimeRow`](crate::times::TimeRow)s are, one for each record of a function; 0: calls are
    /// never timed. Only where the helper delays.
    pub times_offset: AtomicU64,
    /// Written by the helper: calls that did not end in the order of the stack, for example because greenlets
    /// switched. Their time is in no row.
    pub times_unmatched: AtomicU64,
    /// Written by the helper: calls that there was no room to time for: too many threads, too deep.
    pub times_without_room: AtomicU64,
    /// Where the [`CallerRow`](crate::callers::CallerRow)s are; 0: callers are not recorded. Only where calls
    /// are timed.
    pub callers_offset: AtomicU64,
    /// Written by the helper: calls that there was no row for.
    pub callers_without_room: AtomicU64,
    /// Where the [`Branch`]es are, one for each record of a function.
    pub branches_offset: AtomicU64,
    /// Written by the helper: the bits of the callers that targets name (`caller=`) and that it has found,
    /// that of caller 1 first.
    pub callers_found: AtomicU64,
    /// How many [`CallerRow`](crate::callers::CallerRow)s there are, a power of two.
    pub callers_capacity: AtomicU32,
    /// Written by the helper: bits of [`unlisted`].
    pub unlisted: AtomicU32,
    /// Written by the helper: the share of the time, in thousandths, in which another tool's frame evaluation
    /// hook was in the place of the helper's and did not call it.
    pub hook_missed: AtomicU32,
    /// The number of the stretch of timed calls; 0: calls are not timed. The loader may change it in a live
    /// session, before the generation: the helper takes up both. Only where there are rows for times.
    pub timing: AtomicU32,
    /// The number of this block, which the helper passes to its stub ([`stub_target`](crate::stub_target)). A
    /// process that was forked from another maps the same helper, and may have a block of its own.
    pub number: AtomicU32,
    /// Reserved, 0.
    pub reserved: AtomicU32,
}

/// What the helper counts of one function, and which policy it has. The sums wrap around.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Calls {
    /// Calls seen, but for those in [`Calls::own_calls`].
    pub calls: AtomicU64,
    /// Calls delayed.
    pub delayed: AtomicU64,
    /// Sum of the delays asked for, in ns.
    pub requested_ns: AtomicU64,
    /// Sum of the delays as they were, in units of the clock.
    pub delivered: AtomicU64,
    /// A [`FunctionEntry`](crate::FunctionEntry): written by the loader.
    pub entry: AtomicU64,
    /// The thread pointer of the thread that called it last.
    pub thread: AtomicU64,
    /// Calls seen in the process that the helper lives in, where the interpreter's lock has one thread at a
    /// time count: that needs no atomic addition, which takes 5 ns. All else counts in [`Calls::calls`]:
    /// forked children, and threads without such a lock.
    pub own_calls: AtomicU64,
    /// Calls that the session's bound left without their delay.
    pub bounded: AtomicU64,
}

/// How many calls a policy with a `frequency` has counted: the sum of both fields.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Turns {
    /// Counted as [`Calls::own_calls`] are, without atomic additions.
    pub own: AtomicU64,
    /// Counted as [`Calls::calls`] are.
    pub shared: AtomicU64,
}

/// A [`Histogram`] of one function's delays, word by word. Times are in units of the clock.
pub type DelayCounts = [AtomicU64; Histogram::WORDS];

/// A text that is written once, before the state says that it is there.
#[derive(Debug)]
#[repr(transparent)]
pub struct FailureText(pub [core::sync::atomic::AtomicU8; FAILURE_TEXT_BYTES]);

impl Default for FailureText {
    fn default() -> Self {
        Self([const { core::sync::atomic::AtomicU8::new(0) }; FAILURE_TEXT_BYTES])
    }
}

/// One function that the helper found and the selector selected.
///
/// Its number is its position. A function is known by target, file, qualified name and line; code objects
/// that agree in these share a record.
#[derive(Debug, Default)]
#[repr(C)]
pub struct FunctionRecord {
    /// 1 when all the rest is written.
    pub ready: AtomicU32,
    /// The target that selects it, as the selector numbers them.
    pub target: AtomicU32,
    /// `co_firstlineno`.
    pub line: AtomicU32,
    /// Offset of the qualified name in the names; NUL-terminated there.
    pub name_offset: AtomicU32,
    /// Its length in bytes, without the NUL.
    pub name_length: AtomicU32,
    /// Offset of `co_filename` in the names; NUL-terminated there.
    pub file_offset: AtomicU32,
    /// Its length in bytes, without the NUL.
    pub file_length: AtomicU32,
    /// The generation that selected it.
    pub generation: AtomicU32,
}

/// Which calls of its function a record is for, if targets are for some callers alone (`caller=`): the
/// function has a record for each of these targets, and its calls try them in order. All zero for others.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Branch {
    /// The number of the caller that the record's target is for, from 1 on; 0: all calls.
    pub caller: AtomicU32,
    /// The number + 1 of the record that other calls try next; 0: they count nowhere.
    pub next: AtomicU32,
}

/// Arguments of the USDT probe `speed_bump:python_entry`, in their order: what a probe there can rely on.
///
/// The stubs get them in the registers of the platform's calling convention.
pub mod python_entry {
    /// USDT provider.
    pub const PROVIDER: &str = "speed_bump";
    /// USDT name.
    pub const NAME: &str = "python_entry";
    /// Number of the function in the table (`u32`).
    pub const FUNCTION: usize = 0;
    /// Number of the target (`u32`).
    pub const TARGET: usize = 1;
    /// Qualified name: pointer to a NUL-terminated string.
    pub const QUALNAME: usize = 2;
    /// File: pointer to a NUL-terminated string.
    pub const FILE: usize = 3;
    /// Line (`u32`).
    pub const LINE: usize = 4;
    /// How long the helper took from hearing of the call to this probe, in ticks of the processor's counter
    /// (`u32`: the TSC, `cntvct_el0`).
    pub const TICKS: usize = 5;
}
