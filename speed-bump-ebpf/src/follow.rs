//! Following processes: which forks and execs the loader must hear of.
//!
//! The offsets of `task_struct` come from the running kernel's BTF, read by the loader and written into
//! these constants before the program is loaded; the compiler must not fold their placeholders.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::raw_tracepoint, programs::RawTracePointContext};
use speed_bump_abi::{Event, EventKind, Handshake, maps::Fault};

use crate::{
    hold,
    maps::{CALLER_PROCESSES, CALLER_SPANS, EVENTS, HANDSHAKES, TRACKED, fault},
    signal,
    task::field,
};

/// Offset of `task_struct.pid`: the thread's id.
#[unsafe(no_mangle)]
static TASK_PID_OFFSET: u32 = 0;
/// Offset of `task_struct.tgid`: the process's id.
#[unsafe(no_mangle)]
static TASK_TGID_OFFSET: u32 = 0;
/// Offset of `task_struct.mm`.
#[unsafe(no_mangle)]
static TASK_MM_OFFSET: u32 = 0;

/// Sends an event to the loader.
#[inline(always)]
fn announce(event: Event) {
    if EVENTS.output::<Event>(&event, 0).is_err() {
        fault(Fault::EventLost);
    }
}

/// `sched_process_fork(parent, child)`: runs in the parent, before the child has run.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(context: RawTracePointContext) -> i32 {
    let parent_tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: presence is all that is asked.
    if unsafe { TRACKED.get(parent_tgid) }.is_none() {
        return 0;
    }
    let (parent, child): (u64, u64) = (context.arg(0), context.arg(1));
    let (Some(pid), Some(tgid)) =
        (field::<u32>(child, &TASK_PID_OFFSET), field::<u32>(child, &TASK_TGID_OFFSET))
    else {
        return 0;
    };
    if pid != tgid {
        return 0; // a thread: covered with its process
    }
    // The child has the helper's handler, until it executes.
    // SAFETY: the value is copied at once.
    if let Some(handshake) = unsafe { HANDSHAKES.get(parent_tgid).copied() }
        && let Some(started) = signal::started(child)
        && HANDSHAKES.insert(tgid, Handshake { started, ..handshake }, 0).is_err()
    {
        fault(Fault::NoRoom);
    }
    // We do not compare two options: LLVM compiles that to a branch that reads a value that was never set.
    // The branch is never taken, but the verifier of 6.1 does not know that.
    let memory = |task: u64| field::<u64>(task, &TASK_MM_OFFSET).unwrap_or(0);
    let shares_memory = memory(child) == memory(parent);
    if TRACKED.insert(tgid, 1, 0).is_err() {
        fault(Fault::NoRoom);
    }
    announce(Event {
        kind: EventKind::Fork as u32,
        pid: tgid,
        detail: u32::from(shares_memory),
        parent: parent_tgid,
    });
    0
}

/// `sched_process_exec`: runs in the process that has just replaced its image.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(_context: RawTracePointContext) -> i32 {
    if let Some(event) = exec() {
        hold::until_traced(event);
    }
    0
}

/// [`process_exec`], for kernels before 5.17: no process is held.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn exec_bounded(_context: RawTracePointContext) -> i32 {
    exec();
    0
}

/// Announces an exec. Returns what it announced.
#[inline(always)]
fn exec() -> Option<Event> {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let _ = HANDSHAKES.remove(tgid);
    // The code of callers lies elsewhere in the new image.
    // SAFETY: the value is copied at once.
    if let Some(process) = unsafe { CALLER_PROCESSES.get(tgid).copied() } {
        let _ = CALLER_SPANS.remove(process);
    }
    // SAFETY: as above.
    unsafe { TRACKED.get(tgid) }?;
    let event = Event { kind: EventKind::Exec as u32, pid: tgid, detail: 0, parent: 0 };
    announce(event);
    Some(event)
}
