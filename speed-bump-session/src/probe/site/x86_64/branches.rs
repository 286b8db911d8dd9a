//! Finds the destinations of branches: the instructions near a function's entry that other code may jump to.

use std::{collections::HashSet, ops::Range};

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::instructions::Instructions;
use crate::{
    probe::site::{CodeMap, Doubt, FunctionCode},
    units::VirtualAddress,
};

/// The longest function that we search: 4 MiB, which takes about 20 ms. If a function is longer, its symbol
/// is wrong, or a program generated its code.
pub(super) const LONGEST_FUNCTION: u64 = 4 << 20;

/// The most bytes that we search in all moved pieces together: twice what the largest libraries have.
pub(super) const FRAGMENTS_LIMIT: u64 = 64 << 20;
/// The most branches in moved pieces.
const BRANCHES_LIMIT: usize = 4 << 20;

/// How many instructions outside the function we follow, from its jumps on.
pub(super) const OUTSIDE_LIMIT: usize = 16_384;

/// The branches to the straight line of instructions from a function's entry.
#[derive(Debug, Default)]
pub(super) struct Branches {
    /// The lowest destination on the line after the entry, and the address of the branch.
    first_target: Option<(u64, u64)>,
    to_entry: Option<u64>,
    doubt: Option<Doubt>,
}

impl Branches {
    /// Searches all code that may contain a branch to the line. The line extends from the entry to
    /// `line_end`.
    pub(super) fn find(function: &FunctionCode<'_>, size: u64, line_end: u64) -> Self {
        let entry = function.entry.0;
        let extent = function.map.overlap(&(entry..entry.saturating_add(size)));
        let mut search = Search {
            map: function.map,
            line: entry..line_end,
            extent: extent.clone(),
            found: Self::default(),
            outside: Vec::new(),
            has_calls: false,
        };
        if extent.end - extent.start > LONGEST_FUNCTION {
            search.found.doubt = Some(Doubt::TooMuchCode);
            return search.found;
        }
        search.sweep();
        search.follow_outside();
        let Some(from_fragments) = fragment_branches(function.map) else {
            search.found.doubt = Some(Doubt::TooMuchCode);
            return search.found;
        };
        let first = from_fragments.partition_point(|(to, _)| *to < entry);
        for &(to, from) in from_fragments[first..].iter().take_while(|(to, _)| *to < line_end) {
            search.note(to, from);
        }
        if search.has_calls && function.map.hides_landing_pads(&extent) {
            search.found.doubt.get_or_insert(Doubt::LandingPads);
        }
        search.found
    }

    /// The lowest destination on the line after the entry, and the address of the branch.
    pub(super) fn first_target(&self) -> Option<(u64, u64)> {
        self.first_target
    }

    /// The address of a jump to the entry itself.
    pub(super) fn to_entry(&self) -> Option<u64> {
        self.to_entry
    }

    /// Why there may be branches that we do not know.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }
}

struct Search<'a> {
    map: &'a CodeMap<'a>,
    line: Range<u64>,
    extent: Range<u64>,
    found: Branches,
    /// Destinations of jumps that leave the extent.
    outside: Vec<u64>,
    has_calls: bool,
}

impl Search<'_> {
    /// Decodes all code of the extent, in order of address. Instructions start at the beginning of the
    /// extent, and again at the entry.
    fn sweep(&mut self) {
        let mut starts = Vec::new();
        let mut targets = Vec::new();
        for range in [self.extent.start..self.line.start, self.line.start..self.extent.end] {
            for instruction in Instructions::new(self.map, range.start, range.end) {
                starts.push(instruction.ip());
                self.look_at(&instruction);
                if let Some(target) = branch_target(&instruction).filter(|to| self.extent.contains(to)) {
                    targets.push(target);
                }
            }
        }
        // If a branch lands in the middle of an instruction, the sweep decoded data, and may have missed
        // code.
        let between = targets.into_iter().find(|target| starts.binary_search(target).is_err());
        if let Some(target) = between {
            self.doubt(Doubt::InsideInstruction(VirtualAddress(target)));
        }
    }

    /// Follows the jumps that leave the function until they come back. The jumps lead to the function's moved
    /// pieces, and to code that the function shares with others. Code after a jump to another function's
    /// entry belongs to that other function.
    fn follow_outside(&mut self) {
        let mut seen = HashSet::new();
        while let Some(start) = self.outside.pop() {
            if self.extent.contains(&start) || self.map.is_entry(start) || seen.contains(&start) {
                continue;
            }
            let instructions = Instructions::new(self.map, start, u64::MAX);
            if instructions.is_outside_code() {
                self.doubt(Doubt::Undecodable(VirtualAddress(start)));
            }
            let mut first = true;
            for instruction in instructions {
                if !seen.insert(instruction.ip()) || self.extent.contains(&instruction.ip()) {
                    break;
                }
                if seen.len() > OUTSIDE_LIMIT {
                    self.doubt(Doubt::TooMuchCode);
                    return;
                }
                // An entry of the procedure linkage table leaves the file for good.
                if first && instruction.code() == Code::Jmp_rm64 && instruction.is_ip_rel_memory_operand() {
                    break;
                }
                first &= matches!(instruction.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop);
                self.look_at(&instruction);
                let goes_on = matches!(
                    instruction.flow_control(),
                    FlowControl::Next
                        | FlowControl::ConditionalBranch
                        | FlowControl::Call
                        | FlowControl::IndirectCall
                        | FlowControl::XbeginXabortXend
                );
                if !goes_on || self.map.is_entry(instruction.next_ip()) {
                    break;
                }
            }
        }
    }

    fn look_at(&mut self, instruction: &Instruction) {
        if instruction.is_invalid() {
            self.doubt(Doubt::Undecodable(VirtualAddress(instruction.ip())));
            return;
        }
        let tail_call =
            instruction.is_ip_rel_memory_operand() && self.map.in_got(instruction.ip_rel_memory_address());
        if instruction.flow_control() == FlowControl::IndirectBranch && !tail_call {
            self.doubt(Doubt::IndirectJump(VirtualAddress(instruction.ip())));
        }
        let is_call = instruction.mnemonic() == Mnemonic::Call;
        self.has_calls |= is_call;
        if let Some(target) = branch_target(instruction) {
            // A call of the entry is an ordinary call.
            if !(is_call && target == self.line.start) {
                self.note(target, instruction.ip());
            }
            if !is_call && !self.extent.contains(&target) {
                self.outside.push(target);
            }
        } else if let Some(address) =
            loaded_address(instruction).filter(|address| *address != self.line.start)
        {
            self.note(address, instruction.ip());
        }
    }

    fn note(&mut self, to: u64, from: u64) {
        if to == self.line.start {
            self.found.to_entry.get_or_insert(from);
        } else if self.line.contains(&to) && self.found.first_target.is_none_or(|(least, _)| to < least) {
            self.found.first_target = Some((to, from));
        }
    }

    fn doubt(&mut self, doubt: Doubt) {
        self.found.doubt.get_or_insert(doubt);
    }
}

/// Every branch in every moved piece of a function, by destination. If an exception handler is in a moved
/// piece, only the unwinder enters it, so we do not find the handler by following jumps. We need not know
/// which function a piece belongs to: no other function's piece jumps to this line. `None` if there is too
/// much to search.
fn fragment_branches<'a>(map: &'a CodeMap<'_>) -> Option<&'a [(u64, u64)]> {
    let branches = map.fragment_branches.get_or_init(|| {
        let mut left = FRAGMENTS_LIMIT;
        let mut branches = Vec::new();
        for range in map.fragments() {
            left = left.checked_sub(range.end - range.start)?;
            let found = Instructions::new(map, range.start, range.end)
                .filter(|instruction| instruction.mnemonic() != Mnemonic::Call)
                .filter_map(|instruction| Some((branch_target(&instruction)?, instruction.ip())));
            branches.extend(found);
            if branches.len() > BRANCHES_LIMIT {
                return None;
            }
        }
        branches.sort_unstable();
        Some(branches)
    });
    branches.as_deref()
}

/// The destination of a direct branch, or of an aborted transaction.
pub(super) fn branch_target(instruction: &Instruction) -> Option<u64> {
    matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
        .then(|| instruction.near_branch_target())
}

/// An address that the code computes, perhaps in order to jump there.
fn loaded_address(instruction: &Instruction) -> Option<u64> {
    match instruction.mnemonic() {
        Mnemonic::Lea if instruction.memory_base() == Register::RIP => {
            Some(instruction.ip_rel_memory_address())
        }
        Mnemonic::Mov if matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate64) => {
            Some(instruction.immediate(1))
        }
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Immediate32to64 => Some(instruction.immediate(1)),
        _ => None,
    }
}
