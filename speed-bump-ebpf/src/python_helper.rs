//! The stub of the helper in a Python process: the registers name function and target, and say how long the
//! helper took.
//!
//! The helper gave the function its number, and the process could call the stub with any other: so the
//! program checks the number against the process's own range, and the target against the existing policies. A
//! function is counted and delayed from its first call on, before the loader has heard of it; if the loader
//! has given it a policy of its own since, that one holds.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::uprobe, programs::ProbeContext};
use speed_bump_abi::{NotDelayed, from_stub_target};

use crate::{
    arch,
    decision::not_delayed,
    maps::SITES,
    own_stack,
    spin::{Bounded, Looping, Spin},
    visit::{self, visit_for},
};

/// `speed_bump:python_entry(function, target, qualname, file, line, ticks)`.
#[uprobe]
pub fn python_helper(context: ProbeContext) -> u32 {
    at_stub::<Looping>(&context)
}

/// [`python_helper`], for kernels before 5.17.
#[uprobe]
pub fn python_bounded(context: ProbeContext) -> u32 {
    at_stub::<Bounded>(&context)
}

#[inline(always)]
fn at_stub<S: Spin>(context: &ProbeContext) -> u32 {
    own_stack::insist(context);
    let Some(site) = SITES.get(crate::cookie(context).site) else { return 0 };
    // SAFETY: the context of a uprobe is its `pt_regs`.
    let [function, target, ticks] = arch::stub_arguments(unsafe { &*context.regs });
    let (function, (target, block)) = (function as u32, from_stub_target(target));
    // A process with a block of its own has a probe of its own.
    if block != site.block {
        return 0;
    }
    if function < site.functions {
        if visit::passes(site.function + function, target) {
            return 0;
        }
        // SAFETY: the helper has no preconditions.
        let entered_ns = unsafe { bpf_ktime_get_ns() };
        let overhead_ns = site.overhead_ns.saturating_add(site.helper_ns(ticks as u32) as u32);
        visit_for::<S>(site.function + function, target, overhead_ns, entered_ns, true);
    } else {
        not_delayed(NotDelayed::NotItsFunction, function);
    }
    0
}
