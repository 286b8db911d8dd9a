//! Functions: how a call names one, and what is counted of it.

/// The policy of a function that a target selected, or of a place for such a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FunctionEntry {
    /// 0: none; else the policy's number plus 1.
    bits: u32,
}

impl FunctionEntry {
    /// No policy of its own. A call through the helper's stub then has the policy of the target that the stub
    /// names; any other call is counted and never delayed.
    pub const NONE: Self = Self { bits: 0 };

    /// The policy with this number.
    #[inline(always)]
    pub const fn of(policy: u32) -> Self {
        Self { bits: policy.wrapping_add(1) }
    }

    /// The entry as a word of the map.
    pub const fn to_word(self) -> u64 {
        self.bits as u64
    }

    /// Reads what [`FunctionEntry::to_word`] wrote.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { bits: word as u32 }
    }

    /// The number of the policy, or else this one.
    #[inline(always)]
    pub const fn policy_or(self, other: u32) -> u32 {
        if self.bits == 0 { other } else { self.bits - 1 }
    }
}

/// No policy: calls are counted and never delayed.
pub const NO_POLICY: u32 = u32::MAX;
/// No function: the call names it.
pub const NO_FUNCTION: u32 = u32::MAX;

/// Counters of one function on one CPU. Exact: every update is one atomic addition, since a BPF program
/// may be preempted by another task's on the same CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FunctionStats {
    /// Calls seen.
    pub calls: u64,
    /// Calls delayed.
    pub delayed: u64,
    /// Sum of the delays asked for, in ns.
    pub requested_ns: u64,
    /// Sum of the delays as they were, in ns.
    pub delivered_ns: u64,
    /// Not a sum: what the [`Telltale`](crate::Telltale) said after the last spins, in ns, by
    /// [`running_median`](crate::policy::running_median), at most 65 us. 0 before the first.
    pub telltale_ns: u16,
    /// Not a sum: the delay that `telltale_ns` is about, [in short](FunctionStats::in_short).
    pub telltale_of: u16,
    /// Not a sum: 0, or the number of the function's [`Histogram`](crate::Histogram) on this CPU, plus 1. It
    /// gets one with its first delay.
    pub histogram: u32,
    /// Calls that should have been delayed by a signal and were not, as it could not be sent safely.
    pub missed: u64,
    /// Not a sum: when the last delay ended, in ns of `CLOCK_MONOTONIC`. 0 before the first.
    pub ended_ns: u64,
    /// Calls that should have been delayed and were not, as the session's bound left their threads no room.
    pub bounded: u64,
}

impl FunctionStats {
    /// Index into [`STATS`](crate::maps::STATS): the counters of a function on one of `processors`
    /// processors.
    #[inline(always)]
    pub const fn position(function: u32, processors: u32, processor: u32) -> u32 {
        function.wrapping_mul(processors).wrapping_add(processor)
    }

    /// The counters from the words of the map, in their order.
    pub const fn from_words(words: [u64; 8]) -> Self {
        let [calls, delayed, requested_ns, delivered_ns, three, missed, ended_ns, bounded] = words;
        let (telltale_ns, telltale_of, histogram) = Self::split(three);
        Self {
            calls,
            delayed,
            requested_ns,
            delivered_ns,
            telltale_ns,
            telltale_of,
            histogram,
            missed,
            ended_ns,
            bounded,
        }
    }

    /// The words that [`FunctionStats::from_words`] reads.
    pub const fn to_words(self) -> [u64; 8] {
        let Self { calls, delayed, requested_ns, delivered_ns, missed, ended_ns, bounded, .. } = self;
        let (telltale_ns, telltale_of) = (self.telltale_ns as u64, self.telltale_of as u64);
        let three = if cfg!(target_endian = "little") {
            (self.histogram as u64) << 32 | telltale_of << 16 | telltale_ns
        } else {
            telltale_ns << 48 | telltale_of << 32 | self.histogram as u64
        };
        [calls, delayed, requested_ns, delivered_ns, three, missed, ended_ns, bounded]
    }

    /// The three fields that share a word.
    const fn split(word: u64) -> (u16, u16, u32) {
        if cfg!(target_endian = "little") {
            (word as u16, (word >> 16) as u16, (word >> 32) as u32)
        } else {
            ((word >> 48) as u16, (word >> 32) as u16, word as u32)
        }
    }

    /// A short number for a delay in ns, to distinguish the delay from others. Few delays share a number.
    #[inline(always)]
    pub const fn in_short(delay_ns: u64) -> u16 {
        (delay_ns ^ delay_ns >> 16 ^ delay_ns >> 32) as u16
    }

    /// What was counted since an earlier reading of the same counters.
    pub const fn since(self, earlier: &Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            delayed: self.delayed.saturating_sub(earlier.delayed),
            requested_ns: self.requested_ns.saturating_sub(earlier.requested_ns),
            delivered_ns: self.delivered_ns.saturating_sub(earlier.delivered_ns),
            missed: self.missed.saturating_sub(earlier.missed),
            bounded: self.bounded.saturating_sub(earlier.bounded),
            ..self
        }
    }
}

impl core::ops::AddAssign for FunctionStats {
    /// Adds up the fields that are sums.
    fn add_assign(&mut self, other: Self) {
        // The process can write to the memory of the helper's counts, so they may be any numbers.
        self.calls = self.calls.saturating_add(other.calls);
        self.delayed = self.delayed.saturating_add(other.delayed);
        self.requested_ns = self.requested_ns.saturating_add(other.requested_ns);
        self.delivered_ns = self.delivered_ns.saturating_add(other.delivered_ns);
        self.missed = self.missed.saturating_add(other.missed);
        self.bounded = self.bounded.saturating_add(other.bounded);
    }
}

/// A trampoline of CPython's perf support (3.12+): one per code object and process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct TrampolineKey {
    /// Where the evaluator returns to: an address inside the trampoline.
    pub return_address: u64,
    /// Index of the process, from the [`Cookie`](crate::Cookie).
    pub process: u64,
}

/// Bytes of a file name that take part in [`PythonKey`], the closing NUL included.
pub const FILE_BYTES: usize = 256;
/// Bytes of a function name that take part in [`PythonKey`], the closing NUL included.
pub const NAME_BYTES: usize = 96;

/// A code location as CPython's `function__entry` describes it. NUL-padded; longer strings are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PythonKey {
    /// `co_filename`.
    pub file: [u8; FILE_BYTES],
    /// `co_name`.
    pub name: [u8; NAME_BYTES],
    /// `co_firstlineno`, or the current line in versions that pass that.
    pub line: u32,
}

/// The loader's verdict on a code location, as stored in [`PYTHON_VERDICTS`](crate::maps::PYTHON_VERDICTS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not decided yet: calls are counted in [`PYTHON_PENDING`](crate::maps::PYTHON_PENDING).
    Pending,
    /// No target selects it.
    Ignored,
    /// Selected: index into [`FUNCTIONS`](crate::maps::FUNCTIONS).
    Function(u32),
}

impl Verdict {
    /// The verdict as the map carries it.
    #[inline(always)]
    pub const fn to_bits(self) -> u32 {
        match self {
            Self::Pending => 0,
            Self::Ignored => 1,
            Self::Function(index) => index + 2,
        }
    }

    /// Reads what [`Verdict::to_bits`] wrote.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Pending,
            1 => Self::Ignored,
            other => Self::Function(other - 2),
        }
    }
}
