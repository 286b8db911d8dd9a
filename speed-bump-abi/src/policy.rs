//! When and how long to delay: data that the loader may change at any moment of a session.

/// The session's window and stop flag, one per BPF object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Control {
    /// Calls before this time (ns of `CLOCK_MONOTONIC`) are counted, never delayed.
    pub start_ns: u64,
    /// Calls from this time on (ns of `CLOCK_MONOTONIC`) are counted, never delayed; `u64::MAX` is no end.
    pub end_ns: u64,
    /// Not 0: nothing is delayed, and a spin in flight ends at once. Set before detaching, so that
    /// detaching never waits for a long delay.
    pub stop: u64,
}

/// How a trap that finds the caches cold is told from a warm one, and what it costs more; one per BPF object.
///
/// Nearly all of that is spent before the BPF program reads the clock for the first time. But its own look-ups
/// suffer from the same cold caches: what they take longer than in a warm trap tells what the trap costs more around
/// the program, by a line of few segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Coldness {
    /// What the program's look-ups take in a warm trap, in ns.
    pub warm_ns: u32,
    /// Reserved, 0.
    pub reserved: u32,
    /// The line, from `warm_ns` on. Beyond its end it is flat.
    pub segments: [ColdSegment; Coldness::SEGMENTS],
}

/// A piece of the line of [`Coldness`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ColdSegment {
    /// How much longer the look-ups take from its beginning to its end, in ns.
    pub length_ns: u32,
    /// What the trap costs more for each ns of that; [`Coldness::ONE`] is 1.
    pub factor: u32,
}

impl Coldness {
    /// A factor of 1.
    pub const ONE: u32 = 256;
    /// Pieces of the line.
    pub const SEGMENTS: usize = 3;

    /// What a trap whose look-ups took so long costs more than a warm one, in ns.
    #[inline(always)]
    pub fn more_ns(&self, took_ns: u64) -> u64 {
        let mut left = took_ns.saturating_sub(self.warm_ns as u64);
        let mut more = 0;
        for segment in &self.segments {
            let part = left.min(segment.length_ns as u64);
            more += part * segment.factor as u64;
            left -= part;
        }
        more / Self::ONE as u64
    }
}

/// What happens to the matching calls of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Policy {
    /// Delay of a trigger in ns; 0 counts calls and delays none.
    pub delay_ns: u64,
    /// Every `frequency`-th matching call is a trigger; 0 and 1 both mean every call.
    pub frequency: u64,
}
