//! Chooses the cheapest correct site of a function. A uprobe there counts every call exactly once, at the
//! lowest cost.
//!
//! Some instructions the kernel emulates, others it single-steps. A uprobe on an emulated instruction costs a
//! twentieth. But the kernel single-steps the first instruction of most functions. So we decode the
//! instructions that every call executes once, from the entry to the first transfer of control. We take the
//! cheapest of these to which no other code jumps. In doubt we take the entry. Nothing here attaches or
//! measures: the caller gives the cost of each kind.
//!
//! We conclude for these reasons that a site counts exactly once. The most reliable comes first:
//! - No direct branch lands after the entry and at or before the site. We check the branches in the function,
//!   in symbols that overlap it, in its moved pieces (`.cold`), and in the code that it jumps to. Also, no
//!   symbol lies in this range, and no code loads an address in it.
//! - If we do not know all branches (`jmp reg`: switches, computed gotos), we only take sites up to the
//!   last push that saves a register for the caller. A second pass over that push would save the register
//!   twice, so compilers let no branch land at or before it.
//! - If a function jumps to its own entry, it executes all of these sites again, and the entry too. Then a
//!   turn of the loop looks like a call. [`Exactness`] reports whether this happens, or may happen.
//!
//! We do not consider code that the process changed after mapping it. We also ignore jumps from other files
//! to the instruction after `endbr64`: no linker for x86-64 makes these.

mod aarch64;
pub mod calls;
mod code;
mod exits;
mod x86_64;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::{
    code::{
        CodeMap, CodeSegment, CodeSymbol, FunctionCode, LandingPads, ReadCode, function_of_fragment,
        is_fragment_name,
    },
    exits::{EXITS_LIMIT, Exit, NoExits, exits},
};
use crate::units::{Nanos, VirtualAddress};

/// The cost class of a uprobe, by the instruction at its site. Each machine measures which classes are cheap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteKind {
    /// Five bytes that do nothing, within a page. From Linux 6.18 on, the kernel rewrites them; older kernels
    /// single-step them.
    Nop5,
    /// `90`, also with prefixes: emulated.
    Nop,
    /// `0F 1F` of another length, or across two pages. From Linux 6.18 on, the kernel emulates it; older
    /// kernels single-step it.
    LongNop,
    /// `push` of a 64-bit register: emulated.
    Push,
    /// A direct `jmp`: emulated.
    Jmp,
    /// A conditional jump, other than `loop` and `jrcxz`: emulated.
    Jcc,
    /// A direct `call`: emulated.
    Call,
    /// Anything else: the kernel single-steps a copy of the instruction in a special page.
    SingleStep,
}

impl SiteKind {
    /// Every kind, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Nop5,
        Self::Nop,
        Self::LongNop,
        Self::Push,
        Self::Jmp,
        Self::Jcc,
        Self::Call,
        Self::SingleStep,
    ];
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nop5 => "5-byte nop",
            Self::Nop => "nop",
            Self::LongNop => "long nop",
            Self::Push => "push",
            Self::Jmp => "jump",
            Self::Jcc => "conditional jump",
            Self::Call => "call",
            Self::SingleStep => "single step",
        })
    }
}

/// The site of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address of the instruction, as in the file's headers.
    pub address: VirtualAddress,
    /// Bytes from the function's entry.
    pub offset_in_function: u32,
    /// The cost class.
    pub kind: SiteKind,
    /// The instruction, disassembled.
    pub instruction: String,
    /// The distance from `rsp` at the site to the return address, in bytes, before the instruction executes.
    /// 0 at the entry. `None` if earlier code moves `rsp` by an unknown amount.
    pub stack_delta: Option<u32>,
    /// Whether a call hits the site exactly once.
    pub exactness: Exactness,
    /// Why we chose this site, as a sentence for `list`.
    pub reason: String,
}

/// Whether each call hits a site exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exactness {
    /// Yes.
    Once,
    /// We found no branch to the entry, but do not know every branch: an indirect jump could lead there.
    Unproven,
    /// No: the function jumps to its own entry. So a turn of that loop counts as a call, and so does a tail
    /// call of the function by itself.
    Repeats,
}

impl fmt::Display for Exactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Once => "once a call",
            Self::Unproven => "once a call, as far as branches are known",
            Self::Repeats => "once a call and once a jump to the entry",
        })
    }
}

/// Why the kernel accepts no probe on an instruction, or why a probe there would break the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelRefusal {
    /// The bytes are not an instruction.
    #[error("its bytes are no instruction")]
    Undecodable,
    /// `F0`.
    #[error("the kernel refuses probes on a lock prefix")]
    Lock,
    /// `26`, `2E`, `36`, `3E`.
    #[error("the kernel refuses probes on a segment prefix, branch hint or notrack")]
    SegmentPrefix,
    /// `int3`: a debugger's breakpoint, or padding.
    #[error("it is a breakpoint already")]
    Breakpoint,
    /// `syscall`, `sysenter`, `int`.
    #[error("a system call cannot be stepped safely")]
    SystemCall,
    /// `pushf`.
    #[error("stepping over pushf would leave the trap flag in what it saves")]
    TrapFlag,
    /// `mov ss`.
    #[error("the kernel refuses probes on loads of the stack segment")]
    StackSegment,
    /// `xbegin` and similar instructions.
    #[error("a trap aborts transactions")]
    Transaction,
    /// The instruction faults in user mode.
    #[error("it is a privileged instruction")]
    Privileged,
    /// `xchg rax, r8`.
    #[error("kernels before 6.18 take `xchg rax, r8` for a nop")]
    TakenForNop,
    /// `66` before a relative branch.
    #[error("the kernel refuses probes on branches with an operand-size prefix")]
    OperandSizeBranch,
    /// The instruction is not in the kernel's table.
    #[error("the kernel does not step this instruction")]
    NotInTable,
}

/// Why an instruction cannot be a site, although every call executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exclusion {
    /// The kernel accepts no probe on the instruction.
    #[error(transparent)]
    Refused(#[from] KernelRefusal),
    /// The instruction traps several times in one execution.
    #[error("it traps once for each element")]
    TrapsRepeatedly,
    /// The instruction is a call, and the process has shadow stacks.
    #[error("kernels that do not push to the shadow stack would kill the process at the return")]
    ShadowStack,
    /// The kernel may rewrite the instruction to a call, and earlier code of the function has stored data
    /// below `rsp`.
    #[error("the kernel may rewrite it to a call, which overwrites what the function stored below rsp")]
    RedZone,
    /// A branch, or code that may be one, leads into the instruction, or between the entry and the
    /// instruction.
    #[error("code at {from} leads to {to}, so it may run more often than once")]
    Reached {
        /// The branch.
        from: VirtualAddress,
        /// Where it lands.
        to: VirtualAddress,
    },
    /// We cannot show that the instruction executes once per call.
    #[error("it may run more often than once: {0}")]
    Unproven(Doubt),
}

/// Why we do not know all branches of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// A jump through a register or through memory.
    #[error("where the indirect jump at {0} goes is not known")]
    IndirectJump(VirtualAddress),
    /// The function contains bytes that are not an instruction, or jumps to such bytes.
    #[error("there is no instruction at {0}")]
    Undecodable(VirtualAddress),
    /// A branch lands in the middle of an instruction: the function contains data, or does something unusual.
    #[error("a branch lands inside the instruction before {0}")]
    InsideInstruction(VirtualAddress),
    /// There is more code than we search for branches.
    #[error("there is too much code to search for branches")]
    TooMuchCode,
    /// Exception handlers may lie in code that no symbol names.
    #[error("its exception handlers may lie where no symbol shows them")]
    LandingPads,
}

/// Why the list of instructions that every call executes once ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// A jump, call or return: the last candidate.
    Transfer(String),
    /// The end of the function, or of the bytes.
    FunctionEnd,
    /// Another symbol: other code may enter here.
    Symbol(VirtualAddress),
    /// Bytes that are not an instruction.
    Undecodable(VirtualAddress),
    /// We do not know the size of the function, and so not its branches. Only the entry is a candidate.
    SizeUnknown,
    /// The list is long enough.
    Limit,
    /// There is no decoder for this architecture.
    Architecture,
}

impl fmt::Display for LineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transfer(instruction) => write!(f, "up to the first transfer of control, `{instruction}`"),
            Self::FunctionEnd => f.write_str("up to the function's end"),
            Self::Symbol(address) => write!(f, "up to the next symbol, at {address}"),
            Self::Undecodable(address) => write!(f, "up to {address}, which is no instruction"),
            Self::SizeUnknown => {
                f.write_str("at the entry, and the file does not give the function's size to look further")
            }
            Self::Limit => f.write_str("in the first instructions"),
            Self::Architecture => f.write_str("at the entry, and other sites are chosen on x86-64 only"),
        }
    }
}

/// An instruction that every call executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address of the site.
    pub address: VirtualAddress,
    /// The distance from the entry in bytes.
    pub offset: u32,
    /// The cost class, also for an excluded candidate.
    pub kind: SiteKind,
    /// The instruction, disassembled.
    pub instruction: String,
    /// See [`Site::stack_delta`].
    pub stack_delta: Option<u32>,
    /// Why the instruction cannot be a site; `None` if it can.
    pub excluded: Option<Exclusion>,
    /// If the instruction were the site: whether a call hits it exactly once.
    pub exactness: Exactness,
}

/// Every instruction that could be a function's site, with the reasons against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The candidates in order, the entry first.
    pub candidates: Vec<Candidate>,
    /// Why the list ends.
    pub end: LineEnd,
    /// A branch in the function to its own entry.
    pub jump_to_entry: Option<VirtualAddress>,
}

/// Why a function has no site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteRefusal {
    /// The entry is not in an executable segment.
    #[error("{0} lies outside the file's executable code: the symbol is no function of this file")]
    OutsideCode(VirtualAddress),
    /// No instruction that every call executes accepts a probe.
    #[error(
        "no probe can be placed on the function at {entry}: its first instruction is `{instruction}`, and \
         {exclusion}; probe one of its callers, or what it calls, instead"
    )]
    NoSite {
        /// The address of the function's entry.
        entry: VirtualAddress,
        /// The instruction at the entry, disassembled.
        instruction: String,
        /// Why the entry cannot have a probe.
        exclusion: Exclusion,
    },
}

/// Chooses the site of a function: [`analyse`], then [`Analysis::choose`].
///
/// # Errors
/// See [`analyse`] and [`Analysis::choose`].
pub fn choose(function: &FunctionCode<'_>, cost: &dyn Fn(SiteKind) -> Nanos) -> Result<Site, SiteRefusal> {
    analyse(function)?.choose(cost)
}

/// As [`choose()`], but only among sites where we know the place of the return address. At the entry we do.
///
/// # Errors
/// As for [`choose`].
pub fn choose_with_return_address(
    function: &FunctionCode<'_>,
    cost: &dyn Fn(SiteKind) -> Nanos,
) -> Result<Site, SiteRefusal> {
    let mut analysis = analyse(function)?;
    analysis.candidates.retain(|candidate| candidate.stack_delta.is_some());
    analysis.choose(cost)
}

/// Finds every instruction that each call of a function executes, and the reasons why it cannot be a site.
///
/// # Errors
/// [`SiteRefusal::OutsideCode`] if the file has no code at the entry.
pub fn analyse(function: &FunctionCode<'_>) -> Result<Analysis, SiteRefusal> {
    if cfg!(target_arch = "x86_64") { x86_64::analyse(function) } else { aarch64::analyse(function) }
}

impl Analysis {
    /// The cheapest candidate, by the measured cost of each kind. A later candidate must be cheaper by more
    /// than a tenth, so that measurement noise does not move the site.
    ///
    /// # Errors
    /// [`SiteRefusal::NoSite`] if all candidates have a reason against them.
    pub fn choose(&self, cost: &dyn Fn(SiteKind) -> Nanos) -> Result<Site, SiteRefusal> {
        let mut best: Option<(&Candidate, u128)> = None;
        for candidate in self.candidates.iter().filter(|candidate| candidate.excluded.is_none()) {
            let cost = u128::from(cost(candidate.kind).0);
            if best.is_none_or(|(_, least)| cost * 10 < least * 9) {
                best = Some((candidate, cost));
            }
        }
        match (best, self.candidates.first()) {
            (Some((site, least)), _) => Ok(Site {
                address: site.address,
                offset_in_function: site.offset,
                kind: site.kind,
                instruction: site.instruction.clone(),
                stack_delta: site.stack_delta,
                exactness: site.exactness,
                reason: self.reason(site, least, cost),
            }),
            (None, Some(entry)) => Err(SiteRefusal::NoSite {
                entry: entry.address,
                instruction: entry.instruction.clone(),
                exclusion: entry.excluded.unwrap_or(Exclusion::Refused(KernelRefusal::Undecodable)),
            }),
            // `analyse` always returns the entry. A value made by hand may have no candidates.
            (None, None) => Err(SiteRefusal::OutsideCode(VirtualAddress(0))),
        }
    }

    fn reason(&self, site: &Candidate, least: u128, cost: &dyn Fn(SiteKind) -> Nanos) -> String {
        let cheaper = |candidate: &&Candidate| u128::from(cost(candidate.kind).0) * 10 < least * 9;
        let passed_over = self.candidates.iter().filter(cheaper).find_map(|candidate| {
            let exclusion = candidate.excluded?;
            Some(format!(
                "`{}` at +{:#x} would be cheaper, but {exclusion}",
                candidate.instruction, candidate.offset
            ))
        });
        let mut reason = match (site.offset, self.candidates.first().and_then(|entry| entry.excluded)) {
            (0, _) => passed_over.unwrap_or_else(|| format!("nothing is cheaper {}", self.end)),
            (_, Some(exclusion)) => format!("the entry takes no probe: {exclusion}"),
            (_, None) => "every call runs through it once, and it is cheaper than the entry".to_owned(),
        };
        if let Some(from) = self.jump_to_entry {
            reason.push_str(&format!("; the jump at {from} to the entry counts as a call"));
        }
        reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_exactness_have_words_of_their_own() {
        let kinds = SiteKind::ALL.map(|kind| kind.to_string());
        let expected =
            ["5-byte nop", "nop", "long nop", "push", "jump", "conditional jump", "call", "single step"];
        assert_eq!(kinds, expected);
        let exactness = [Exactness::Once, Exactness::Unproven, Exactness::Repeats].map(|it| it.to_string());
        assert_eq!(exactness[0], "once a call");
        assert!(exactness[1].contains("as far as") && exactness[2].contains("a jump to the entry"));
    }
}
