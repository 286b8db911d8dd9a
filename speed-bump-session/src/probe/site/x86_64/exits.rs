//! Finds all exits in a function's code.
//!
//! We decode all code in order of address, and then follow it from the entry. Both must find the same
//! instructions. If they do not, there is data in between. We do not know the destinations of a `switch`. So
//! if there is a `switch`, we count all decoded instructions as code of the function. If there is none, we
//! ignore instructions to which no jump leads (exception handlers).

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use iced_x86::{Code, FlowControl, Instruction, Mnemonic};
use speed_bump_abi::Condition;

use super::{
    LONGEST_INSTRUCTION, branches::branch_target, frame::Frame, instructions::Instructions,
    treatment::Encoding,
};
use crate::{
    probe::site::{CodeMap, EXITS_LIMIT, Exit, FunctionCode, KernelRefusal, NoExits},
    units::VirtualAddress,
};

/// The most code of a function that we decode, including moved pieces.
const BYTES_LIMIT: u64 = 256 << 10;
/// How many bytes of an entry of the procedure linkage table we check.
const LINKAGE_BYTES: u64 = 32;

/// The distance from the stack pointer to the return address in bytes, if known.
type Depth = Option<u32>;

/// Finds the exits of a function.
pub(in crate::probe::site) fn exits(function: &FunctionCode<'_>) -> Result<Vec<Exit>, NoExits> {
    let entry = function.entry.0;
    let size = function.size.filter(|size| *size > 0).ok_or(NoExits::SizeUnknown)?;
    let mut body = Body::new(function.map, entry);
    body.add(entry..entry.saturating_add(size))?;
    body.follow(entry, Some(0))?;
    // At the cases of a switch, the stack is the same as at the jump.
    while let Some(depth) = body.switch {
        let Some(start) = body.unreached() else { break };
        body.follow(start, depth)?;
    }
    if body.exits.is_empty() {
        return Err(NoExits::NeverReturns);
    }
    let exit = |(address, condition): (&u64, &Condition)| exit(function.map, *address, *condition);
    body.exits.iter().map(exit).collect()
}

/// The exit at an address. Fails if no probe can be there.
fn exit(map: &CodeMap<'_>, address: u64, condition: Condition) -> Result<Exit, NoExits> {
    let at = VirtualAddress(address);
    let refused = |why| NoExits::Refused(at, why);
    let instruction = Instructions::new(map, address, address.saturating_add(LONGEST_INSTRUCTION as u64));
    let instruction = instruction.into_iter().next().ok_or(refused(KernelRefusal::Undecodable))?;
    let bytes = map.bytes_at(address, instruction.len());
    let encoding = Encoding::read(&bytes).ok_or(refused(KernelRefusal::Undecodable))?;
    match encoding.refusal(&instruction) {
        Some(why) => Err(refused(why)),
        None if encoding.may_be_rewritten(&instruction) => Err(NoExits::Rewritten(at)),
        None => Ok(Exit { address: at, kind: encoding.kind(&instruction), condition }),
    }
}

/// The code of a function, including its moved pieces.
struct Body<'m> {
    map: &'m CodeMap<'m>,
    entry: u64,
    ranges: Vec<Range<u64>>,
    instructions: BTreeMap<u64, Instruction>,
    /// The instructions that we have followed so far, each with the stack depth there.
    reached: HashMap<u64, Depth>,
    exits: BTreeMap<u64, Condition>,
    /// If there is an indirect jump that does not leave the function, this is the stack depth there.
    switch: Option<Depth>,
}

impl<'m> Body<'m> {
    fn new(map: &'m CodeMap<'m>, entry: u64) -> Self {
        Self {
            map,
            entry,
            ranges: Vec::new(),
            instructions: BTreeMap::new(),
            reached: HashMap::new(),
            exits: BTreeMap::new(),
            switch: None,
        }
    }

    /// Decodes a piece in order of address.
    fn add(&mut self, range: Range<u64>) -> Result<(), NoExits> {
        let length = |range: &Range<u64>| range.end - range.start;
        let before: u64 = self.ranges.iter().map(length).sum();
        if before.saturating_add(length(&range)) > BYTES_LIMIT {
            return Err(NoExits::TooMuchCode);
        }
        let decoded = Instructions::new(self.map, range.start, range.end);
        self.instructions.extend(decoded.map(|instruction| (instruction.ip(), instruction)));
        self.ranges.push(range);
        Ok(())
    }

    fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// The first instruction that no followed code leads to. Padding does not count.
    fn unreached(&self) -> Option<u64> {
        let fills = |instruction: &Instruction| {
            matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Ud2)
        };
        let mut all = self.instructions.iter();
        let unreached =
            all.find(|(address, instruction)| !self.reached.contains_key(address) && !fills(instruction));
        unreached.map(|(address, _)| *address)
    }

    /// Follows the code from an address on, and everything that it jumps to.
    fn follow(&mut self, start: u64, depth: Depth) -> Result<(), NoExits> {
        let mut next = vec![(start, depth)];
        while let Some((address, depth)) = next.pop() {
            let depth = match self.reached.get(&address) {
                Some(known) if *known == depth || known.is_none() => continue,
                // We have reached this code with two different depths, so we follow it again with an unknown
                // depth.
                Some(_) => None,
                None => depth,
            };
            self.reached.insert(address, depth);
            let Some(instruction) = self.instructions.get(&address).copied() else {
                return Err(NoExits::InsideInstruction(VirtualAddress(address)));
            };
            self.run(&instruction, depth, &mut next)?;
        }
        Ok(())
    }

    /// Adds the successors of one instruction to `next`.
    fn run(
        &mut self,
        instruction: &Instruction,
        depth: Depth,
        next: &mut Vec<(u64, Depth)>,
    ) -> Result<(), NoExits> {
        let at = VirtualAddress(instruction.ip());
        if instruction.is_invalid() {
            return Err(NoExits::Undecodable(at));
        }
        let goes_on = match instruction.flow_control() {
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => None,
            FlowControl::Next => {
                let mut frame = Frame::at(depth);
                frame.run(instruction);
                Some(frame.depth())
            }
            FlowControl::Call | FlowControl::IndirectCall => {
                // If the code after the call is outside the function, the call does not return.
                if self.contains(instruction.next_ip()) {
                    // Code uses a `call` of the next instruction as a push.
                    let pushes = branch_target(instruction) == Some(instruction.next_ip());
                    next.push((instruction.next_ip(), depth.filter(|_| !pushes)));
                }
                None
            }
            FlowControl::ConditionalBranch => {
                let condition = condition(instruction);
                self.jump(instruction, condition, depth, next)?;
                Some(depth)
            }
            FlowControl::XbeginXabortXend => {
                if branch_target(instruction).is_some() {
                    self.jump(instruction, None, depth, next)?;
                }
                Some(depth)
            }
            FlowControl::UnconditionalBranch => {
                self.jump(instruction, Some(Condition::Always), depth, next)?;
                None
            }
            FlowControl::IndirectBranch => {
                let tail = instruction.is_ip_rel_memory_operand()
                    && self.map.in_got(instruction.ip_rel_memory_address());
                match depth {
                    _ if tail => self.leave(at.0, Condition::Always)?,
                    Some(1..) => self.switch = Some(depth),
                    Some(0) | None => return Err(NoExits::IndirectJump(at)),
                }
                None
            }
            FlowControl::Return => {
                if instruction.mnemonic() != Mnemonic::Ret {
                    return Err(NoExits::Undecodable(at));
                }
                self.leave(at.0, Condition::Always)?;
                None
            }
            FlowControl::Interrupt => (instruction.mnemonic() == Mnemonic::Int).then_some(depth),
            FlowControl::Exception => None,
        };
        if let Some(depth) = goes_on {
            if !self.contains(instruction.next_ip()) {
                return Err(NoExits::RunsOn(VirtualAddress(instruction.next_ip())));
            }
            next.push((instruction.next_ip(), depth));
        }
        Ok(())
    }

    /// A direct jump: within the function, to a moved piece, or out of the function.
    fn jump(
        &mut self,
        instruction: &Instruction,
        condition: Option<Condition>,
        depth: Depth,
        next: &mut Vec<(u64, Depth)>,
    ) -> Result<(), NoExits> {
        let from = VirtualAddress(instruction.ip());
        let to = branch_target(instruction).ok_or(NoExits::Undecodable(from))?;
        if to == self.entry {
            return Err(NoExits::JumpsToEntry);
        }
        if !self.contains(to) {
            if self.map.is_entry(to) || self.is_linkage(to) {
                return self.leave(from.0, condition.ok_or(NoExits::LeftByLoop(from))?);
            }
            let piece = self.map.fragment_at(to).ok_or(NoExits::IntoOtherCode(from))?;
            self.add(piece)?;
        }
        next.push((to, depth));
        Ok(())
    }

    fn leave(&mut self, address: u64, condition: Condition) -> Result<(), NoExits> {
        self.exits.insert(address, condition);
        if self.exits.len() > EXITS_LIMIT { Err(NoExits::TooMany) } else { Ok(()) }
    }

    /// Whether an entry of the procedure linkage table begins at this address: it jumps at once to an address
    /// from memory.
    fn is_linkage(&self, address: u64) -> bool {
        let instructions = Instructions::new(self.map, address, address.saturating_add(LINKAGE_BYTES));
        let first = instructions.into_iter().find(|it| it.mnemonic() != Mnemonic::Endbr64);
        first.is_some_and(|first| first.code() == Code::Jmp_rm64 && first.is_ip_rel_memory_operand())
    }
}

/// The condition of a conditional jump. `None` for jumps that count or test a register.
fn condition(instruction: &Instruction) -> Option<Condition> {
    use iced_x86::ConditionCode as C;
    let code = match instruction.condition_code() {
        _ if !instruction.is_jcc_short_or_near() => return None,
        C::None => return None,
        C::o => 0,
        C::no => 1,
        C::b => 2,
        C::ae => 3,
        C::e => 4,
        C::ne => 5,
        C::be => 6,
        C::a => 7,
        C::s => 8,
        C::ns => 9,
        C::p => 10,
        C::np => 11,
        C::l => 12,
        C::ge => 13,
        C::le => 14,
        C::g => 15,
    };
    Some(Condition::Flags(code))
}
