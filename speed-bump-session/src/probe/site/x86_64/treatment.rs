//! How the kernel treats an instruction under a uprobe: emulates it, single-steps it, or refuses it.
//!
//! Source: `arch/x86/kernel/uprobes.c` in the 6.18 cycle (`uprobe_init_insn`, `branch_setup_xol_ops`,
//! `push_setup_xol_ops`, `can_optimize`), with `insn_is_nop` as proposed for `arch/x86/lib/insn-eval.c` in
//! the same cycle. We compared with a running 6.18 which instructions the kernel accepts and refuses. If we
//! know that another version differs, we assume what is safe on both.

use iced_x86::{Instruction, Mnemonic, Register};

use crate::probe::site::{KernelRefusal, SiteKind};

/// The encoding of one instruction, as the kernel decodes it.
pub(super) struct Encoding<'a> {
    prefixes: &'a [u8],
    rex: Option<u8>,
    map: Map,
    opcode: u8,
    modrm: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Map {
    One,
    /// `0F` comes before the opcode.
    Two,
    /// VEX or EVEX: the kernel still looks up the opcode byte in the table of one-byte opcodes.
    Vector,
}

impl<'a> Encoding<'a> {
    /// Reads the parts of the encoding that [`Instruction`] does not keep. Returns `None` unless the bytes
    /// are one decoded instruction.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let is_prefix = |byte: &&u8| {
            matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3)
        };
        let (prefixes, mut rest) = bytes.split_at(bytes.iter().take_while(is_prefix).count());
        let rex = rest.first().copied().filter(|byte| byte & 0xf0 == 0x40);
        if rex.is_some() {
            rest = &rest[1..];
        }
        let (map, skip) = match *rest.first()? {
            0x0f => (Map::Two, 1),
            0xc5 => (Map::Vector, 2),
            0xc4 => (Map::Vector, 3),
            0x62 => (Map::Vector, 4),
            _ => (Map::One, 0),
        };
        let opcode = *rest.get(skip)?;
        Some(Self { prefixes, rex, map, opcode, modrm: rest.get(skip + 1).copied() })
    }

    /// Why the kernel refuses a probe here, or why a probe would break the program.
    pub(super) fn refusal(&self, instruction: &Instruction) -> Option<KernelRefusal> {
        if self.prefixes.contains(&0xf0) {
            return Some(KernelRefusal::Lock);
        }
        // The prefixes for ES, CS, SS and DS. The same bytes are also branch hints and `notrack`, and occur
        // in the long nops that pad code.
        if self.prefixes.iter().any(|prefix| matches!(prefix, 0x26 | 0x2e | 0x36 | 0x3e)) {
            return Some(KernelRefusal::SegmentPrefix);
        }
        match instruction.mnemonic() {
            // The kernel steps the copy with the trap flag set, and PUSHF pushes this flag. The matching POPF
            // then sets the flag for good, and SIGTRAP kills the process. We measured this on 6.18.
            Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq => return Some(KernelRefusal::TrapFlag),
            Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int => return Some(KernelRefusal::SystemCall),
            Mnemonic::Int3 | Mnemonic::Int1 => return Some(KernelRefusal::Breakpoint),
            Mnemonic::Xbegin | Mnemonic::Xend | Mnemonic::Xabort => return Some(KernelRefusal::Transaction),
            Mnemonic::Mov if instruction.op0_register() == Register::SS => {
                return Some(KernelRefusal::StackSegment);
            }
            _ => {}
        }
        if instruction.is_privileged() {
            return Some(KernelRefusal::Privileged);
        }
        // Before 6.18 the kernel took every 90 for a nop, so it skipped `xchg rax, r8`.
        if self.is_one(0x90..=0x90) && self.rex.is_some_and(|rex| rex & 1 != 0) {
            return Some(KernelRefusal::TakenForNop);
        }
        if self.prefixes.contains(&0x66) && self.is_relative_branch() {
            return Some(KernelRefusal::OperandSizeBranch);
        }
        // POP begins with the same byte as AMD's XOP. The kernel's code for RIP-relative operands does not
        // know XOP.
        let xop = self.is_one(0x8f..=0x8f) && instruction.mnemonic() != Mnemonic::Pop;
        let in_table = self.map == Map::Two || in_one_byte_table(self.opcode);
        (xop || !in_table).then_some(KernelRefusal::NotInTable)
    }

    /// How the kernel executes an instruction that it does not refuse.
    pub(super) fn kind(&self, instruction: &Instruction) -> SiteKind {
        if self.may_be_rewritten(instruction) && fits_page(instruction) && !self.is_one(0x89..=0x8d) {
            return SiteKind::Nop5;
        }
        match (self.map, self.opcode) {
            (Map::One, 0x90) if self.is_nop() => SiteKind::Nop,
            _ if self.is_nop() => SiteKind::LongNop,
            // The kernel emulates a push only in its plain encodings: the opcode alone, or REX.B and the
            // opcode.
            (Map::One, 0x50..=0x57) if self.prefixes.is_empty() && matches!(self.rex, None | Some(0x41)) => {
                SiteKind::Push
            }
            (Map::One, 0xe8) => SiteKind::Call,
            (Map::One, 0xe9 | 0xeb) => SiteKind::Jmp,
            (Map::One, 0x70..=0x7f) | (Map::Two, 0x80..=0x8f) => SiteKind::Jcc,
            _ => SiteKind::SingleStep,
        }
    }

    /// Whether Linux 6.18 may take this for a five-byte nop, and replace it by a call of its trampoline. That
    /// call pushes below `rsp`, where a leaf function may keep its variables (the red zone). We measured on
    /// 6.18 that the call overwrites them.
    pub(super) fn may_be_rewritten(&self, instruction: &Instruction) -> bool {
        instruction.len() == 5
            && match (self.map, self.opcode) {
                (Map::One, 0xe9) => instruction.near_branch_target() == instruction.next_ip(),
                // Padded `mov rax, rax` and `lea rax, [rax + 0]`. We treat all operands of these opcodes
                // alike.
                (Map::One, 0x89 | 0x8d) => true,
                _ => self.is_nop(),
            }
    }

    /// Whether the instruction traps once for each element when the kernel single-steps it: `rep movsb` and
    /// similar instructions return to the probe after each element. We measured this on 6.18.
    pub(super) fn traps_repeatedly(&self) -> bool {
        (self.is_one(0xa4..=0xa7) || self.is_one(0xaa..=0xaf))
            && self.prefixes.iter().any(|prefix| matches!(prefix, 0xf2 | 0xf3))
    }

    /// Whether this is a nop that kernels emulate: 90 without REP (with REP it is `pause`), and, from 6.18
    /// on, 0F 1F /0.
    fn is_nop(&self) -> bool {
        let rex = self.rex.unwrap_or(0);
        match (self.map, self.opcode) {
            (Map::One, 0x90) => rex & 1 == 0 && !self.prefixes.contains(&0xf3),
            (Map::Two, 0x1f) => rex & 4 == 0 && self.modrm.is_some_and(|modrm| modrm & 0x38 == 0),
            _ => false,
        }
    }

    /// Whether this is a relative branch. The kernel emulates it, unless a prefix makes it a 16-bit branch:
    /// Intel and AMD execute a 16-bit branch differently.
    fn is_relative_branch(&self) -> bool {
        match self.map {
            Map::One => matches!(self.opcode, 0x70..=0x7f | 0xe8 | 0xe9 | 0xeb),
            Map::Two => matches!(self.opcode, 0x80..=0x8f),
            Map::Vector => false,
        }
    }

    fn is_one(&self, opcodes: std::ops::RangeInclusive<u8>) -> bool {
        self.map == Map::One && opcodes.contains(&self.opcode)
    }
}

/// Whether the kernel steps this one-byte opcode of 64-bit code. The kernel also looks up VEX and EVEX
/// opcodes here, so it refuses `vpxor` (EF) and `vmovdqu` (6F).
fn in_one_byte_table(opcode: u8) -> bool {
    let invalid = matches!(
        opcode,
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f | 0x60..=0x62
            | 0x82 | 0x9a | 0xce | 0xd4..=0xd6 | 0xea
    );
    let input_output = matches!(opcode, 0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef);
    let system = matches!(opcode, 0xcc | 0xcd | 0xcf | 0xf1 | 0xf4 | 0xfa | 0xfb);
    !(invalid || input_output || system)
}

/// The kernel rewrites five bytes only if they lie in one page.
fn fits_page(instruction: &Instruction) -> bool {
    instruction.ip() % 0x1000 <= 0x1000 - 5
}
