//! `caller=` of native functions: which function a call counts as, by where it returns to.

use aya_ebpf::{EbpfContext as _, programs::ProbeContext};
use speed_bump_abi::{CallerLines, NO_FUNCTION, SiteArguments};

use crate::{
    arch, cookie,
    maps::{CALLER_LINES, CALLER_PROCESSES, CALLER_RANGES, CALLER_SPANS},
};

/// The function that the call at this site counts as. [`NO_FUNCTION`]: no line is for it, or the loader has
/// not covered the process yet.
#[inline(always)]
pub fn function(context: &ProbeContext, site: &SiteArguments) -> u32 {
    find(context, site).unwrap_or(NO_FUNCTION)
}

#[inline(always)]
fn find(context: &ProbeContext, site: &SiteArguments) -> Option<u32> {
    let lines = lines(site)?;
    let process = match cookie(context).process {
        // SAFETY: the value is copied at once; the loader replaces it as a whole.
        0 => unsafe { CALLER_PROCESSES.get(context.tgid()).copied() }?,
        process => process,
    };
    // SAFETY: as above.
    let span = unsafe { CALLER_SPANS.get(process).copied() }?;
    // SAFETY: the context of a uprobe is its `pt_regs`.
    let returns_to = arch::return_address(unsafe { &*context.regs }, site.stack_delta);
    let callers = match returns_to {
        // It may lie behind its function, where that ends with the call.
        Some(address) => {
            span.callers_at(address.wrapping_sub(1), |index| CALLER_RANGES.get(index).copied())?
        }
        None => 0,
    };
    Some(lines.function(callers))
}

/// The lines of the function at this site.
#[inline(always)]
pub fn lines(site: &SiteArguments) -> Option<&'static CallerLines> {
    CALLER_LINES.get(site.callers.wrapping_sub(1)).map(|sets| sets.in_force())
}
