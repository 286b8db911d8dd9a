//! The exits of a function: the returns and tail jumps at which its calls end, for `--times`.
//!
//! The kernel has return probes. A return probe replaces a return address on the stack by its own. If
//! anything unwinds the stack through this address (a C++ exception, a panic, `pthread_cancel`, Go when it
//! moves a stack), the process ends. So we time calls with ordinary probes, at every instruction that leaves
//! the function. In doubt we do not time a function: a probe on bytes that are not an instruction would
//! change the program.

use speed_bump_abi::Condition;

use super::{Exactness, FunctionCode, KernelRefusal, Site, SiteKind, x86_64};
use crate::units::VirtualAddress;

/// The most exits of a function. If a function has more, we do not time it.
pub const EXITS_LIMIT: usize = 128;

/// An instruction that may leave a function. When it leaves, the stack pointer is at the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The address of the instruction.
    pub address: VirtualAddress,
    /// The cost class.
    pub kind: SiteKind,
    /// The condition under which the instruction leaves the function.
    pub condition: Condition,
}

/// Why we cannot find the ends of a function's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExits {
    /// We do not know where the function's code ends.
    #[error("the file does not give its size")]
    SizeUnknown,
    /// There is too much code to decode.
    #[error("it has too much code")]
    TooMuchCode,
    /// There are too many exits to probe.
    #[error("it is left at more than {EXITS_LIMIT} places")]
    TooMany,
    /// The function ends its thread or runs for ever.
    #[error("it never returns, as far as its code shows")]
    NeverReturns,
    /// The function jumps to its own entry, so turns of a loop count as calls.
    #[error("it jumps to its own entry, which counts as a call")]
    JumpsToEntry,
    /// This jump may leave the function, or be a `switch`.
    #[error("its jump at {0} may be a tail call or a switch")]
    IndirectJump(VirtualAddress),
    /// This jump leads to code where no function starts.
    #[error("its jump at {0} leads into code that no symbol names")]
    IntoOtherCode(VirtualAddress),
    /// The condition of this jump is not in the flags.
    #[error("it is left by the loop instruction at {0}")]
    LeftByLoop(VirtualAddress),
    /// The code continues into the next function at this address.
    #[error("it runs on into what follows it, at {0}")]
    RunsOn(VirtualAddress),
    /// There is data here, or something unusual.
    #[error("there is no instruction at {0}")]
    Undecodable(VirtualAddress),
    /// There is data here, or something unusual.
    #[error("a branch lands inside the instruction before {0}")]
    InsideInstruction(VirtualAddress),
    /// The kernel refuses a probe on this exit.
    #[error("no probe can be placed where it is left, at {0}: {1}")]
    Refused(VirtualAddress, KernelRefusal),
    /// The kernel may rewrite this exit, because it looks like a jump that does nothing.
    #[error("kernels from 6.18 on rewrite the jump by which it is left, at {0}")]
    Rewritten(VirtualAddress),
    /// The only site is also an exit, and one probe cannot be both.
    #[error("the instruction where its calls are counted also ends them")]
    IsSite,
    /// We do not know the size of the stack frame at the site.
    #[error("where its return address lies is not known")]
    NoStackDelta,
    /// There is no decoder for this architecture.
    #[error("native functions are timed on x86-64 only")]
    Architecture,
}

/// Finds the exits of a function whose probe is at this site.
///
/// # Errors
/// We cannot time the function's calls, for this reason.
pub fn exits(function: &FunctionCode<'_>, site: &Site) -> Result<Vec<Exit>, NoExits> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(NoExits::Architecture);
    }
    if site.exactness == Exactness::Repeats {
        return Err(NoExits::JumpsToEntry);
    }
    if site.stack_delta.is_none() {
        return Err(NoExits::NoStackDelta);
    }
    let exits = x86_64::exits(function)?;
    if exits.iter().any(|exit| exit.address == site.address) {
        return Err(NoExits::IsSite);
    }
    Ok(exits)
}
