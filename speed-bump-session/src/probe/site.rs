//! The cheapest correct site of a function: where a uprobe counts every call exactly once, at the lowest
//! cost.
//!
//! A uprobe on an instruction that the kernel emulates costs a twentieth of one on an instruction that it
//! single-steps, and most functions start with one of the latter. So we decode the instructions that a call
//! must run through once, from the entry to the first transfer of control, and take the cheapest of them that
//! no other code reaches. In doubt we take the entry. Nothing here attaches or measures: the caller gives the
//! cost of each kind.
//!
//! A site counts exactly once for these reasons, in order of trust:
//! - No direct branch in the function, in what overlaps it, in its moved pieces (`.cold`), or in what it
//!   jumps to lands after the entry and at or before the site; no symbol lies there; no code loads an address
//!   there.
//! - If not all branches are known (`jmp reg`: switches, computed gotos), we only take sites up to the last
//!   push that saves a register for the caller. A second pass over that push would save it twice, so
//!   compilers let no branch land at or before it.
//! - A function that jumps to its own entry runs through every such site again, the entry included. There a
//!   turn of the loop looks like a call: [`Exactness`] reports where that is so, or may be.
//!
//! Not considered: code that the process changed after it was mapped, and entries past `endbr64` from other
//! files, which no linker for x86-64 makes.

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

/// The cost class of a uprobe, by the instruction at its site. Which ones are cheap is measured on each
/// machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteKind {
    /// Five bytes that do nothing, within a page: rewritten to a call from Linux 6.18 on, stepped before.
    Nop5,
    /// `90`, also with prefixes: emulated.
    Nop,
    /// `0F 1F` of another length, or across two pages: emulated from Linux 6.18 on, stepped before.
    LongNop,
    /// `push` of a 64-bit register: emulated.
    Push,
    /// A direct `jmp`: emulated.
    Jmp,
    /// A conditional jump, other than `loop` and `jrcxz`: emulated.
    Jcc,
    /// A direct `call`: emulated.
    Call,
    /// Anything else: the kernel single-steps a copy in a page of its own.
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
    /// The instruction, as the file's headers count.
    pub address: VirtualAddress,
    /// Bytes from the function's entry.
    pub offset_in_function: u32,
    /// Its cost class.
    pub kind: SiteKind,
    /// The instruction, disassembled.
    pub instruction: String,
    /// Bytes from `rsp` at the site, before the instruction runs, to the return address; 0 at the entry.
    /// `None` where the code up to here moves `rsp` by an amount that it does not show.
    pub stack_delta: Option<u32>,
    /// Whether a call hits it exactly once.
    pub exactness: Exactness,
    /// Why this site and no other, in a sentence for `list`.
    pub reason: String,
}

/// Whether each call hits a site exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exactness {
    /// Yes.
    Once,
    /// Nothing shows the contrary, but not every branch is known: an indirect jump could lead to the entry.
    Unproven,
    /// No: the function jumps to its own entry, so a turn of that loop, or a tail call of itself, counts as a
    /// call.
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

/// Why the kernel accepts no probe on an instruction, or none that leaves the program intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelRefusal {
    /// The bytes are no instruction.
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
    /// `xbegin` and its like.
    #[error("a trap aborts transactions")]
    Transaction,
    /// Faults in user mode.
    #[error("it is a privileged instruction")]
    Privileged,
    /// `xchg rax, r8`.
    #[error("kernels before 6.18 take `xchg rax, r8` for a nop")]
    TakenForNop,
    /// `66` before a relative branch.
    #[error("the kernel refuses probes on branches with an operand-size prefix")]
    OperandSizeBranch,
    /// Not in the kernel's table of instructions.
    #[error("the kernel does not step this instruction")]
    NotInTable,
}

/// Why an instruction that every call runs through cannot be a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exclusion {
    /// The kernel accepts no probe on it.
    #[error(transparent)]
    Refused(#[from] KernelRefusal),
    /// It traps several times in one execution.
    #[error("it traps once for each element")]
    TrapsRepeatedly,
    /// A call, in a process with shadow stacks.
    #[error("kernels that do not push to the shadow stack would kill the process at the return")]
    ShadowStack,
    /// The kernel may rewrite it to a call, and the function has stored data below `rsp` before.
    #[error("the kernel may rewrite it to a call, which overwrites what the function stored below rsp")]
    RedZone,
    /// A branch, or code that may branch, leads between the entry and it, or into it.
    #[error("code at {from} leads to {to}, so it may run more often than once")]
    Reached {
        /// The branch.
        from: VirtualAddress,
        /// Where it lands.
        to: VirtualAddress,
    },
    /// Nothing shows that it runs once.
    #[error("it may run more often than once: {0}")]
    Unproven(Doubt),
}

/// Why not all branches of a function are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// A jump through a register or through memory.
    #[error("where the indirect jump at {0} goes is not known")]
    IndirectJump(VirtualAddress),
    /// The function contains bytes that are no instruction, or jumps to some.
    #[error("there is no instruction at {0}")]
    Undecodable(VirtualAddress),
    /// A branch lands in the middle of an instruction: the function contains data, or plays tricks.
    #[error("a branch lands inside the instruction before {0}")]
    InsideInstruction(VirtualAddress),
    /// More code than we search for branches.
    #[error("there is too much code to search for branches")]
    TooMuchCode,
    /// Exception handlers may lie in code that no symbol names.
    #[error("its exception handlers may lie where no symbol shows them")]
    LandingPads,
}

/// The end of the instructions that every call runs through once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// A jump, call or return: the last of the candidates.
    Transfer(String),
    /// The end of the function, or of the bytes.
    FunctionEnd,
    /// Another symbol: another way in.
    Symbol(VirtualAddress),
    /// Bytes that are no instruction.
    Undecodable(VirtualAddress),
    /// The size is not known, so neither are the branches; only the entry is considered.
    SizeUnknown,
    /// Long enough.
    Limit,
    /// No decoder for this architecture.
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

/// An instruction that every call runs through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it lies.
    pub address: VirtualAddress,
    /// Bytes from the entry.
    pub offset: u32,
    /// Its cost class; also for an excluded candidate.
    pub kind: SiteKind,
    /// Disassembled.
    pub instruction: String,
    /// As [`Site::stack_delta`].
    pub stack_delta: Option<u32>,
    /// Why it cannot be a site, if so.
    pub excluded: Option<Exclusion>,
    /// Whether a call hits it exactly once, if it is a site.
    pub exactness: Exactness,
}

/// Every instruction that could be a function's site, with reasons against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// In order, the entry first.
    pub candidates: Vec<Candidate>,
    /// What ends them.
    pub end: LineEnd,
    /// A branch of the function to its own entry.
    pub jump_to_entry: Option<VirtualAddress>,
}

/// Why a function has no site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteRefusal {
    /// The entry is in no executable segment.
    #[error("{0} lies outside the file's executable code: the symbol is no function of this file")]
    OutsideCode(VirtualAddress),
    /// No instruction that a call runs through accepts a probe.
    #[error(
        "no probe can be placed on the function at {entry}: its first instruction is `{instruction}`, and \
         {exclusion}; probe one of its callers, or what it calls, instead"
    )]
    NoSite {
        /// The function's entry.
        entry: VirtualAddress,
        /// Instruction at the entry, disassembled.
        instruction: String,
        /// What is wrong with it.
        exclusion: Exclusion,
    },
}

/// Chooses the site of a function: [`analyse`], then [`Analysis::choose`].
///
/// # Errors
/// As these two.
pub fn choose(function: &FunctionCode<'_>, cost: &dyn Fn(SiteKind) -> Nanos) -> Result<Site, SiteRefusal> {
    analyse(function)?.choose(cost)
}

/// The same, only among sites where it is known where the return address lies. At the entry it is.
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

/// Finds every instruction that each call of a function runs through, and the reasons against it as a site.
///
/// # Errors
/// [`SiteRefusal::OutsideCode`] where the function has no bytes.
pub fn analyse(function: &FunctionCode<'_>) -> Result<Analysis, SiteRefusal> {
    if cfg!(target_arch = "x86_64") { x86_64::analyse(function) } else { aarch64::analyse(function) }
}

impl Analysis {
    /// The cheapest candidate, by the measured cost of each kind. A later one must be cheaper by more than a
    /// tenth, so that noise in the measurement does not move the site.
    ///
    /// # Errors
    /// [`SiteRefusal::NoSite`] where every candidate is excluded.
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
            // `analyse` always returns an entry; hand-made values need not have one.
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
