//! Follows the stack along a straight line of code: its depth, the saved registers, and the use of the red
//! zone (the bytes below `rsp`).

use iced_x86::{Code, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register, UsedMemory};

/// What the code from the entry up to an instruction does to the stack and to saved registers.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    depth: Option<u32>,
    red_zone_used: bool,
    /// One bit for each general register that the code has written.
    written: u16,
}

impl Default for Frame {
    fn default() -> Self {
        Self { depth: Some(0), red_zone_used: false, written: 0 }
    }
}

impl Frame {
    /// The frame at an instruction other than the entry.
    pub(super) fn at(depth: Option<u32>) -> Self {
        Self { depth, ..Self::default() }
    }

    /// The distance from `rsp` to the return address in bytes; `None` if unknown.
    pub(super) fn depth(&self) -> Option<u32> {
        self.depth
    }

    /// Whether the code may have stored data below `rsp`.
    pub(super) fn red_zone_used(&self) -> bool {
        self.red_zone_used
    }

    /// Whether an instruction saves a register for the caller. It does so if it pushes a callee-saved
    /// register that the code has not written: the register still holds the caller's value.
    pub(super) fn saves(&self, instruction: &Instruction) -> bool {
        let register = instruction.op0_register();
        instruction.code() == Code::Push_r64
            && matches!(
                register,
                Register::RBX | Register::RBP | Register::R12 | Register::R13 | Register::R14 | Register::R15
            )
            && self.written & bit(register) == 0
    }

    /// Adds the effect of an instruction that does not transfer control.
    pub(super) fn run(&mut self, instruction: &Instruction) {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        self.red_zone_used |= instruction.is_save_restore_instruction()
            || (!instruction.is_stack_instruction() && info.used_memory().iter().any(may_store_below_rsp));
        let mut moves_rsp = false;
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            let register = used.register().full_register();
            self.written |= bit(register);
            moves_rsp |= register == Register::RSP;
        }
        if moves_rsp {
            let below = self.depth.zip(rsp_decrease(instruction));
            let depth = below.and_then(|(depth, by)| depth.checked_add_signed(by));
            // If `rsp` was raised, data that was above it may be below it now.
            self.red_zone_used |= below.is_none_or(|(_, by)| by < 0);
            self.depth = depth;
        }
    }
}

/// How far an instruction lowers `rsp`; `None` if the instruction does not show it.
fn rsp_decrease(instruction: &Instruction) -> Option<i32> {
    let to_rsp = instruction.op0_register() == Register::RSP;
    match instruction.code() {
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 if to_rsp => {
            i32::try_from(instruction.immediate(1).cast_signed()).ok()
        }
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 if to_rsp => {
            i32::try_from(instruction.immediate(1).cast_signed()).ok()?.checked_neg()
        }
        Code::Lea_r64_m
            if to_rsp
                && instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None =>
        {
            i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?.checked_neg()
        }
        // POP RSP, ENTER and LEAVE set `rsp` to another value.
        Code::Enterq_imm16_imm8 | Code::Leaveq => None,
        _ if instruction.op0_kind() == OpKind::Register && to_rsp && !is_push(instruction) => None,
        _ => match instruction.stack_pointer_increment() {
            0 => None,
            increment => increment.checked_neg(),
        },
    }
}

fn is_push(instruction: &Instruction) -> bool {
    instruction.stack_pointer_increment() < 0
}

fn may_store_below_rsp(memory: &UsedMemory) -> bool {
    let absolute = memory.base() == Register::None && memory.index() == Register::None;
    let of_thread = matches!(memory.segment(), Register::FS | Register::GS);
    let above = memory.base() == Register::RSP
        && memory.index() == Register::None
        && memory.displacement().cast_signed() >= 0;
    writes(memory.access()) && !(absolute || of_thread || above || memory.base() == Register::RIP)
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn bit(register: Register) -> u16 {
    if register.is_gpr64() { 1 << (register.number() & 15) } else { 0 }
}
