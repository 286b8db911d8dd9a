//! The exits of a function: the returns and tail jumps at which its calls end, for `--times`.
//!
//! The kernel has return probes, which replace the return address on the stack by one of their own. If
//! anything unwinds the stack through one of those (a C++ exception, a panic, `pthread_cancel`, Go when it
//! moves a stack), the process ends. So we time calls with ordinary probes, at every instruction that leaves
//! the function. In doubt we do not time a function: a probe on bytes that are not an instruction would
//! change the program.

use speed_bump_abi::Condition;

use super::{Exactness, FunctionCode, KernelRefusal, Site, SiteKind, x86_64};
use crate::units::VirtualAddress;

/// A function with more of them is not timed.
pub const EXITS_LIMIT: usize = 128;

/// An instruction that leaves a function. When it runs, the stack pointer is at the return address, unless it
/// does not leave the function after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Where it lies.
    pub address: VirtualAddress,
    /// Its cost class.
    pub kind: SiteKind,
    /// The condition under which it leaves the function.
    pub condition: Condition,
}

/// Why we cannot find the ends of a function's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExits {
    /// The code's end is not known.
    #[error("the file does not give its size")]
    SizeUnknown,
    /// Too much to decode.
    #[error("it has too much code")]
    TooMuchCode,
    /// Too many to probe.
    #[error("it is left at more than {EXITS_LIMIT} places")]
    TooMany,
    /// It ends its thread or runs for ever.
    #[error("it never returns, as far as its code shows")]
    NeverReturns,
    /// Turns of a loop count as calls.
    #[error("it jumps to its own entry, which counts as a call")]
    JumpsToEntry,
    /// It may leave the function, or be a `switch`.
    #[error("its jump at {0} may be a tail call or a switch")]
    IndirectJump(VirtualAddress),
    /// It leads to where no function starts.
    #[error("its jump at {0} leads into code that no symbol names")]
    IntoOtherCode(VirtualAddress),
    /// A kind of jump whose condition is not in the flags.
    #[error("it is left by the loop instruction at {0}")]
    LeftByLoop(VirtualAddress),
    /// It continues into the next function.
    #[error("it runs on into what follows it, at {0}")]
    RunsOn(VirtualAddress),
    /// Data, or tricks.
    #[error("there is no instruction at {0}")]
    Undecodable(VirtualAddress),
    /// Data, or tricks.
    #[error("a branch lands inside the instruction before {0}")]
    InsideInstruction(VirtualAddress),
    /// The place where it is left.
    #[error("no probe can be placed where it is left, at {0}: {1}")]
    Refused(VirtualAddress, KernelRefusal),
    /// The kernel may take its last jump for five bytes that do nothing.
    #[error("kernels from 6.18 on rewrite the jump by which it is left, at {0}")]
    Rewritten(VirtualAddress),
    /// One probe cannot be both first and last.
    #[error("the instruction where its calls are counted also ends them")]
    IsSite,
    /// A frame of unknown size.
    #[error("where its return address lies is not known")]
    NoStackDelta,
    /// No decoder.
    #[error("native functions are timed on x86-64 only")]
    Architecture,
}

/// Finds the exits of a function that is probed at this site.
///
/// # Errors
/// Why its calls cannot be timed.
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
