//! The BPF programs: those for uprobes, which differ in how a hit names its function, and two that follow
//! processes. Built by `cargo xtask ebpf`; the object is checked in beside the loader.

#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(internal_features, reason = "atomic additions, see `count`")]

mod arch;
mod bucket;
mod callers;
mod count;
mod decision;
mod follow;
mod give_way;
mod histogram;
mod hold;
mod maps;
mod own_stack;
mod policy;
mod python_helper;
mod python_usdt;
mod signal;
mod spin;
mod task;
mod telltale;
mod timed;
mod visit;

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_get_attach_cookie, bpf_ktime_get_ns, bpf_probe_read_user},
    macros::uprobe,
    programs::ProbeContext,
};
use speed_bump_abi::{Cookie, NO_FUNCTION, NO_POLICY, TrampolineKey};

use crate::{
    maps::{SITES, TRAMPOLINES},
    spin::{Bounded, Looping, Spin},
    visit::visit,
};

/// The cookie that the loader attached this site with.
#[inline(always)]
fn cookie(context: &ProbeContext) -> Cookie {
    // SAFETY: the helper takes the program's own context.
    Cookie::from_bits(unsafe { bpf_get_attach_cookie(context.as_ptr()) })
}

/// Native functions and USDT probes: the site is the function.
#[uprobe]
pub fn site(context: ProbeContext) -> u32 {
    at_site::<Looping>(&context)
}

/// [`site`], for kernels before 5.17.
#[uprobe]
pub fn site_bounded(context: ProbeContext) -> u32 {
    at_site::<Bounded>(&context)
}

#[inline(always)]
fn at_site<S: Spin>(context: &ProbeContext) -> u32 {
    own_stack::insist(context);
    let Some(site) = SITES.get(cookie(context).site) else { return 0 };
    if visit::passes(site.function, NO_POLICY) {
        return 0;
    }
    // SAFETY: the helper has no preconditions.
    let entered_ns = unsafe { bpf_ktime_get_ns() };
    visit::<S>(site.function, site.overhead_ns, entered_ns, true);
    0
}

/// Native functions with targets for some callers alone: the site and the return address are the function.
#[uprobe]
pub fn site_callers(context: ProbeContext) -> u32 {
    at_site_of_callers::<Looping>(&context)
}

/// [`site_callers`], for kernels before 5.17.
#[uprobe]
pub fn site_callers_bounded(context: ProbeContext) -> u32 {
    at_site_of_callers::<Bounded>(&context)
}

#[inline(always)]
fn at_site_of_callers<S: Spin>(context: &ProbeContext) -> u32 {
    own_stack::insist(context);
    // SAFETY: the helper has no preconditions.
    let read = || unsafe { bpf_ktime_get_ns() };
    let entered_ns = read();
    let Some(site) = SITES.get(cookie(context).site) else { return 0 };
    let function = callers::function(context, site);
    if function == NO_FUNCTION || visit::passes(function, NO_POLICY) {
        return 0;
    }
    // The time that finding the caller took is part of the overhead, by which a delay is shortened.
    let began_ns = read();
    let overhead_ns = site.overhead_ns.saturating_add((began_ns - entered_ns) as u32);
    visit::<S>(function, overhead_ns, began_ns, true);
    0
}

/// `_PyEval_EvalFrameDefault` under `-X perf`: the return address lies in the function's trampoline.
#[uprobe]
pub fn trampoline(context: ProbeContext) -> u32 {
    own_stack::insist(&context);
    // SAFETY: the helper has no preconditions.
    let entered_ns = unsafe { bpf_ktime_get_ns() };
    let cookie = cookie(&context);
    let Some(site) = SITES.get(cookie.site) else { return 0 };
    // SAFETY: the context of a uprobe is its `pt_regs`.
    let stack = arch::stack_pointer(unsafe { &*context.regs }) + u64::from(site.stack_delta);
    // SAFETY: the helper checks the address.
    let Ok(return_address) = (unsafe { bpf_probe_read_user(stack as *const u64) }) else { return 0 };
    let key = TrampolineKey { return_address, process: u64::from(cookie.process) };
    // SAFETY: the value is copied at once; the loader overwrites it only with another function index.
    if let Some(function) = unsafe { TRAMPOLINES.get(&key) } {
        visit::<Looping>(*function, site.overhead_ns, entered_ns, false);
    }
    0
}

/// Native functions whose calls are timed: counts and delays as [`site`] does, and remembers the call.
#[uprobe]
pub fn site_timed(context: ProbeContext) -> u32 {
    own_stack::insist(&context);
    timed::enter(&context, |site| site.function);
    0
}

/// [`site_timed`], where targets are for some callers alone.
#[uprobe]
pub fn site_callers_timed(context: ProbeContext) -> u32 {
    own_stack::insist(&context);
    timed::enter(&context, |site| callers::function(&context, site));
    0
}

/// The instructions by which timed native functions are left.
#[uprobe]
pub fn site_left(context: ProbeContext) -> u32 {
    own_stack::insist(&context);
    timed::leave(&context);
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The licence that the kernel checks before it lends GPL-only functions.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
