//! What the BPF program knows of the place where it was hit.

/// The 64-bit BPF cookie of an attachment: which process it was made for, and which site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Index of the process in the session; part of [`TrampolineKey`](crate::TrampolineKey).
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
    /// Reserved, 0.
    pub reserved: u32,
    /// `function__entry`: file name, function name, line.
    pub arguments: [ArgumentSpec; 3],
}

impl SiteArguments {
    /// What [`SiteArguments::tick_ns`] is for.
    pub const TICKS: u64 = 1 << 20;
    /// What is believed of the helper's way to the stub, in ns: beyond, the thread was preempted there.
    const LONGEST_WAY_NS: u64 = 2_000;

    /// How long the helper took to its stub, in ns.
    #[inline(always)]
    pub fn helper_ns(&self, ticks: u32) -> u64 {
        let ns = ticks as u64 * self.tick_ns as u64 / Self::TICKS;
        if ns < Self::LONGEST_WAY_NS { ns } else { 0 }
    }
}
