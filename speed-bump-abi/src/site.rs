//! What the BPF program knows of the place where it was hit.

/// The 64-bit BPF cookie of an attachment: which process it was made for, and which site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Index of the process in the session, from 1 on; part of [`TrampolineKey`](crate::TrampolineKey). 0
    /// where programs have no cookies.
    pub process: u32,
    /// Index into [`SITES`](crate::maps::SITES).
    pub site: u32,
}

impl Cookie {
    /// The cookie as the kernel carries it: process in the upper half, site in the lower.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        ((self.process as u64) << 32) | self.site as u64
    }

    /// Reads what [`Cookie::to_bits`] wrote.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self { process: (bits >> 32) as u32, site: bits as u32 }
    }
}

/// How to read one argument of a USDT probe (the notation of `.note.stapsdt`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ArgumentSpec {
    /// One of the `ArgumentSpec::*` kinds.
    pub kind: u8,
    /// Size of the argument in bytes: 1, 2, 4 or 8; negative when signed.
    pub size: i8,
    /// Offset of the (base) register in the kernel's `pt_regs`, in bytes.
    pub register: u16,
    /// Offset of the index register in `pt_regs`, or [`ArgumentSpec::NO_REGISTER`].
    pub index: u16,
    /// Factor of the index register: 1, 2, 4 or 8.
    pub scale: u16,
    /// The constant, or the displacement of a memory operand.
    pub value: i64,
}

impl ArgumentSpec {
    /// No such argument; reads as 0.
    pub const ABSENT: u8 = 0;
    /// The constant `value`.
    pub const CONSTANT: u8 = 1;
    /// The register at `register`.
    pub const REGISTER: u8 = 2;
    /// Memory at register + index * scale + `value`.
    pub const MEMORY: u8 = 3;
    /// `index` when there is no index register.
    pub const NO_REGISTER: u16 = u16::MAX;
}

/// When an instruction leaves its function: always, or on flags of the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// A return, or a jump.
    #[default]
    Always,
    /// A conditional jump, by the lower half of its opcode (Intel SDM, volume 1, appendix B, "EFLAGS
    /// Condition Codes").
    Flags(u8),
}

impl Condition {
    /// As [`SiteArguments::condition`].
    #[inline(always)]
    pub const fn to_bits(self) -> u32 {
        match self {
            Self::Always => 0,
            Self::Flags(code) => 1 + (code as u32 & 15),
        }
    }

    /// Reads what [`to_bits`](Self::to_bits) wrote.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Always,
            bits => Self::Flags((bits - 1) as u8 & 15),
        }
    }

    /// Whether it holds with these flags (`EFLAGS`).
    #[inline(always)]
    pub const fn holds(self, flags: u64) -> bool {
        const CARRY: u64 = 1;
        const PARITY: u64 = 1 << 2;
        const ZERO: u64 = 1 << 6;
        const SIGN: u64 = 1 << 7;
        const OVERFLOW: u64 = 1 << 11;
        let Self::Flags(code) = self else { return true };
        let less = (flags & SIGN != 0) != (flags & OVERFLOW != 0);
        let is_so = match code >> 1 {
            0 => flags & OVERFLOW != 0,
            1 => flags & CARRY != 0,
            2 => flags & ZERO != 0,
            3 => flags & (CARRY | ZERO) != 0,
            4 => flags & SIGN != 0,
            5 => flags & PARITY != 0,
            6 => less,
            _ => less || flags & ZERO != 0,
        };
        is_so != (code & 1 != 0)
    }
}

/// Constants of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SiteArguments {
    /// Index into [`FUNCTIONS`](crate::maps::FUNCTIONS); meaningless where the call names the function. At
    /// the helper's stub: the first of the process's indices, to which the function's number is added.
    pub function: u32,
    /// What a trigger costs the caller outside the BPF program's own clock readings, in ns; subtracted
    /// from every delay.
    pub overhead_ns: u32,
    /// Bytes between the stack pointer at the site and the function's return address.
    pub stack_delta: u32,
    /// At the helper's stub: how many indices the process has from `function` on. A call that names a number
    /// beyond them is not counted. Else 0.
    pub functions: u32,
    /// At the helper's stub: how many ns pass in [`SiteArguments::TICKS`] of the processor's counter; 0 where
    /// that is not known.
    pub tick_ns: u32,
    /// At the entry of a native function whose calls are timed: the time between the last clock reading there
    /// and the first one at the call's end, in ns: the way back from one trap and the way into the next. At
    /// least 1. Else 0.
    pub way_ns: u32,
    /// Where a native function is left: a [`Condition`] as [`Condition::to_bits`] has it.
    pub condition: u32,
    /// At the helper's stub: [`ControlBlock::number`](crate::control_block::ControlBlock::number) of the
    /// block whose functions these are. The probe is on a file that forked processes map too, also those with
    /// a block of their own. Else 0.
    pub block: u32,
    /// At a native function with targets for some callers alone, and where it is left: the number of its
    /// [`CallerLineSets`](crate::CallerLineSets), plus 1. Else 0.
    pub callers: u32,
    /// 0.
    pub reserved: u32,
    /// `function__entry`: file name, function name, line.
    pub arguments: [ArgumentSpec; 3],
}

impl SiteArguments {
    /// The number of ticks whose time is [`SiteArguments::tick_ns`].
    pub const TICKS: u64 = 1 << 20;
    /// The longest time of the helper's way to the stub that we believe, in ns. In a longer one, the thread
    /// was preempted.
    const LONGEST_WAY_NS: u64 = 2_000;

    /// How long the helper took to its stub, in ns.
    #[inline(always)]
    pub fn helper_ns(&self, ticks: u32) -> u64 {
        let ns = ticks as u64 * self.tick_ns as u64 / Self::TICKS;
        if ns < Self::LONGEST_WAY_NS { ns } else { 0 }
    }
}

/// The second argument of the stub: the function's target, and above it the number of the block.
#[inline(always)]
pub const fn stub_target(target: u32, block: u32) -> u64 {
    (block as u64) << 32 | target as u64
}

/// The target and the number of the block in the second argument of the stub.
#[inline(always)]
pub const fn from_stub_target(argument: u64) -> (u32, u32) {
    (argument as u32, (argument >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stubs_second_argument_has_target_and_block() {
        for (target, block) in [(0, 0), (7, u32::MAX), (u32::MAX, 1)] {
            assert_eq!(from_stub_target(stub_target(target, block)), (target, block));
        }
    }

    #[test]
    fn conditions_survive_the_map() {
        for condition in (0..16).map(Condition::Flags).chain([Condition::Always]) {
            assert_eq!(Condition::from_bits(condition.to_bits()), condition);
        }
    }

    /// Runs each conditional jump after comparisons that set all flags that matter.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn conditions_hold_where_the_processor_jumps() {
        macro_rules! jumps {
            ($flags:expr, $($code:literal $name:literal),+) => {$({
                let mut taken: u64;
                // SAFETY: sets the arithmetic flags, which the block is declared to change, and jumps within
                // itself.
                unsafe {
                    core::arch::asm!(
                        "push {flags}", "popfq", "mov {taken:e}, 1", concat!($name, " 2f"),
                        "mov {taken:e}, 0", "2:",
                        flags = in(reg) $flags, taken = out(reg) taken,
                    );
                }
                assert_eq!(Condition::Flags($code).holds($flags), taken == 1, "{} {:#x}", $name, $flags);
            })+};
        }
        for bits in 0..32_u64 {
            let flags = 2 | bits & 1 | (bits & 2) << 1 | (bits & 12) << 4 | (bits & 16) << 7;
            jumps!(flags, 0 "jo", 1 "jno", 2 "jb", 3 "jae", 4 "je", 5 "jne", 6 "jbe", 7 "ja",
                8 "js", 9 "jns", 10 "jp", 11 "jnp", 12 "jl", 13 "jge", 14 "jle", 15 "jg");
            assert!(Condition::Always.holds(flags));
        }
    }
}
