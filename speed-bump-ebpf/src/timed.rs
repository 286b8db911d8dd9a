//! `--times` of native functions: a call is remembered where it begins, and timed where it ends.
//!
//! What the tool itself takes is in nobody's time. A timed call takes two traps. The way back from the first
//! and the way into the second lie in it: as much as one trap costs around its program, since any way in
//! takes as long. Callers lose both traps, with their programs.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, generated::bpf_loop},
    programs::ProbeContext,
};
use speed_bump_abi::{CallStack, Condition, NO_FUNCTION, NO_POLICY, SiteArguments, Turn, Turns, maps::Fault};

use crate::{
    arch, callers, cookie,
    count::add,
    maps::{CALLS, NO_CALLS, SITES, TIMES, fault, faults},
    spin::Looping,
    visit,
};

impl Turns for Looping {
    #[inline(always)]
    fn run<T: Turn>(most: u32, turn: &mut T) {
        // SAFETY: the callback matches what `bpf_loop` calls, and `turn` outlives the call.
        unsafe { bpf_loop(most, one::<T> as *mut c_void, (&raw mut *turn).cast(), 0) };
    }
}

unsafe extern "C" fn one<T: Turn>(number: u64, turn: *mut c_void) -> i64 {
    // SAFETY: `bpf_loop` hands on the context that `run` gave it.
    let is_over = unsafe { (*turn.cast::<T>()).turn(number as u32) };
    if is_over { 1 } else { 0 }
}

/// A call begins: it is remembered, counted and, if its policy says so, delayed. `function`: what it counts
/// as at this site, if it counts.
#[inline(always)]
pub fn enter(context: &ProbeContext, function: impl Fn(&'static SiteArguments) -> u32) {
    // SAFETY: the helper has no preconditions.
    let read = || unsafe { bpf_ktime_get_ns() };
    let entered_ns = read();
    let cookie = cookie(context);
    let Some(site) = SITES.get(cookie.site) else { return };
    let function = function(site);
    if function == NO_FUNCTION {
        return uncounted(site, entered_ns);
    }
    // SAFETY: the context of a uprobe is its `pt_regs`.
    let stack = arch::stack_pointer(unsafe { &*context.regs }) + u64::from(site.stack_delta);
    remember(cookie.process, site, function, stack, entered_ns);
    // The time until here is part of the overhead, by which a delay is shortened.
    let began_ns = read();
    let overhead_ns = site.overhead_ns.wrapping_add((began_ns - entered_ns) as u32);
    // If the call is delayed, all of the trap is part of the delay, and the delay is part of the function's
    // time.
    let is_delayed =
        !visit::passes(function, NO_POLICY) && visit::visit::<Looping>(function, overhead_ns, began_ns, true);
    if is_delayed {
        return;
    }
    let Some(calls) = CALLS.get_ptr_mut(bpf_get_current_pid_tgid()) else { return };
    let now_ns = read();
    let trap_ns = site.overhead_ns.wrapping_add((now_ns - entered_ns) as u32);
    // SAFETY: no other thread has this value.
    unsafe { (*calls).is_not_delayed(function, stack, now_ns, trap_ns) };
}

/// A call begins that does not count: its trap is no time of the call in progress around it.
#[inline(always)]
fn uncounted(site: &SiteArguments, entered_ns: u64) {
    let Some(calls) = CALLS.get_ptr_mut(bpf_get_current_pid_tgid()) else { return };
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: no other thread has this value.
    unsafe { (*calls).charge(0, u64::from(site.overhead_ns) + (now_ns - entered_ns)) };
}

/// Puts a call on its thread's stack of calls, if it is timed: for the time being, as one that is delayed. A
/// function of its own in BPF too, and without a result: the verifier would walk through all that follows
/// once for each result.
#[inline(never)]
fn remember(process: u32, site: &SiteArguments, function: u32, stack: u64, entered_ns: u64) {
    if site.way_ns == 0 {
        return;
    }
    let Some(calls) = calls() else { return fault(Fault::TooDeep) };
    // SAFETY: no other thread has this value.
    let calls = unsafe { &mut *calls };
    let began_ns = entered_ns - u64::from(site.overhead_ns);
    let entered = calls.enter::<Looping>(process, function, stack, began_ns);
    if entered.is_recursive
        && let Some(times) = TIMES.get_ptr_mut(function)
    {
        // SAFETY: `times` points to a live map value.
        unsafe { add(&raw mut (*times).recursive, 1) };
    }
    unmatched(entered.dropped);
    match entered.position {
        Some(position) => calls.at(position).way_ns = site.way_ns,
        None => fault(Fault::TooDeep),
    }
}

/// The calls in progress on this thread.
#[inline(always)]
fn calls() -> Option<*mut CallStack> {
    let thread = bpf_get_current_pid_tgid();
    if let Some(calls) = CALLS.get_ptr_mut(&thread) {
        return Some(calls);
    }
    CALLS.insert(thread, NO_CALLS.get(0)?, 0).ok()?;
    CALLS.get_ptr_mut(&thread)
}

/// A call ends, if the instruction leaves the function, and if it is known when the call began.
#[inline(always)]
pub fn leave(context: &ProbeContext) {
    // SAFETY: the helper has no preconditions.
    let read = || unsafe { bpf_ktime_get_ns() };
    let left_ns = read();
    let cookie = cookie(context);
    let Some(site) = SITES.get(cookie.site) else { return };
    // SAFETY: the context of a uprobe is its `pt_regs`.
    let registers = unsafe { &*context.regs };
    let is_left = Condition::from_bits(site.condition).holds(arch::flags(registers));
    let Some(calls) = CALLS.get_ptr_mut(bpf_get_current_pid_tgid()) else { return };
    // SAFETY: no other thread has this value.
    let calls = unsafe { &mut *calls };
    if is_left {
        let stack = arch::stack_pointer(registers);
        let mut function = site.function;
        if site.callers != 0 {
            function = leaves(site, calls, cookie.process, stack);
        }
        let (left, dropped) = calls.leave::<Looping>(cookie.process, function, stack, left_ns);
        unmatched(dropped);
        if let (Some(left), Some(times)) = (left, TIMES.get_ptr_mut(function)) {
            // SAFETY: `times` points to a live map value.
            unsafe {
                add(&raw mut (*times).own_ns, left.own_ns);
                add(&raw mut (*times).cumulative_ns, left.cumulative_ns);
            }
        }
    }
    // The time of this trap counts for the callers. If a jump was not taken, it counts for the function
    // itself.
    calls.charge(0, u64::from(site.overhead_ns) + (read() - left_ns));
}

/// The function whose call ends at a site where calls count as several functions, by their callers: the call
/// in progress tells. A function of its own in BPF too: with the rest of the program, LLVM keeps what was
/// never set, and the verifier of 6.1 does not know that it is never read.
#[inline(never)]
fn leaves(site: &SiteArguments, calls: &mut CallStack, process: u32, stack: u64) -> u32 {
    if calls.process != process {
        return NO_FUNCTION;
    }
    unmatched(calls.drop_below::<Looping>(stack));
    let function = calls.function_at(stack);
    let Some(lines) = callers::lines(site) else { return NO_FUNCTION };
    if lines.have(function) { function } else { NO_FUNCTION }
}

#[inline(always)]
fn unmatched(calls: u32) {
    if calls > 0 {
        faults(Fault::Unmatched, u64::from(calls));
    }
}
