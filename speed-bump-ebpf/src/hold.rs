//! Holding a process that has just executed a program until the loader traces it.
//!
//! The kernel comes to `sched_process_exec` when the new image is complete and no lock is held, and goes on
//! from there to the stop that a tracer may have asked for at an exec. So a process that is seized meanwhile
//! stands still before its first instruction.
//!
//! The hold is a spin with a limit, and not a stop: it ends by itself, whatever becomes of the loader.
//! Nothing else runs on the processor until then, not even the loader; so only a few processes are held at
//! once.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_get_current_task, bpf_ktime_get_ns, generated::bpf_loop};
use speed_bump_abi::Event;

use crate::{
    count,
    maps::{CONTROL, HELD, HOLDERS},
    task::field,
};

/// Offset of `task_struct.ptrace`: flags that are not zero while a thread is traced.
#[unsafe(no_mangle)]
static TASK_PTRACE_OFFSET: u32 = 0;
/// How long a process is held at most; 0: nobody would trace it.
#[unsafe(no_mangle)]
static HOLD_NS: u64 = 0;
/// How many are held at once.
#[unsafe(no_mangle)]
static HOLD_TASKS: u64 = 0;

/// More checks than fit into the longest hold.
const LOOKS: u32 = 1 << 23;

struct Hold {
    task: u64,
    deadline_ns: u64,
}

/// Reports the exec, and holds the calling process until it is traced. Leaves a process that is traced
/// already to its tracer.
#[inline(always)]
pub fn until_traced(event: Event) {
    // SAFETY: a constant of this object; the loader may have replaced its value.
    let (limit_ns, limit_tasks) = unsafe {
        (core::ptr::read_volatile(&raw const HOLD_NS), core::ptr::read_volatile(&raw const HOLD_TASKS))
    };
    if limit_ns == 0 || session_is_over() {
        return;
    }
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    if is_traced(task) {
        return;
    }
    let Some(holders) = HOLDERS.get_ptr_mut(0) else { return };
    let before = count::next(holders);
    if HELD.output::<Event>(&event, 0).is_ok() && before < limit_tasks {
        // SAFETY: the helper has no preconditions.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        let mut hold = Hold { task, deadline_ns: now_ns + limit_ns };
        // SAFETY: the callback matches what `bpf_loop` calls, and `hold` outlives the call.
        unsafe { bpf_loop(LOOKS, look as *mut c_void, (&raw mut hold).cast(), 0) };
    }
    // Undoes the addition above.
    count::add(holders, u64::MAX);
}

#[inline(always)]
fn is_traced(task: u64) -> bool {
    // If the flags cannot be read, we do not wait.
    field::<u32>(task, &TASK_PTRACE_OFFSET).is_none_or(|flags| flags != 0)
}

#[inline(always)]
fn session_is_over() -> bool {
    // SAFETY: a live map value of this type.
    CONTROL.get_ptr(0).is_none_or(|control| unsafe { (&raw const (*control).stop).read_volatile() } != 0)
}

unsafe extern "C" fn look(_index: u64, context: *mut c_void) -> i64 {
    // SAFETY: `bpf_loop` hands on the context that `until_traced` gave it.
    let hold = unsafe { &*context.cast::<Hold>() };
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    (now_ns >= hold.deadline_ns || is_traced(hold.task) || session_is_over()) as i64
}
