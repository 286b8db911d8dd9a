//! When and how long to delay: data that the loader may change at any moment of a session.

use crate::{bound::Bound, function::NO_POLICY, log::NotDelayed};

/// The session's window, stop flag, expiry, generation and bound, one per BPF object.
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
    /// From this time on (ns of `CLOCK_MONOTONIC`) no policy holds: nothing is delayed, and a spin in flight
    /// ends. The loader moves it on as long as it works.
    pub expires_ns: u64,
    /// Which row of each policy holds, by [`Policy::row`]. All policies that change together change with it.
    pub generation: u64,
    /// How much of a thread's time may be delays. The loader may change it at any time. A call in that moment
    /// may be decided by the share of one bound and the room of another.
    pub bound: Bound,
}

impl Control {
    /// How long policies hold without the loader, in ns.
    pub const EXPIRY_NS: u64 = 1_000_000_000;
    /// How many words it has.
    pub const WORDS: usize = 7;
    /// Which of them is [`Control::generation`].
    pub const GENERATION: usize = 4;
    /// Which of them are [`Control::bound`].
    pub const BOUND: core::ops::Range<usize> = 5..7;

    /// Its words, in their order.
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [start_ns, end_ns, stop, expires_ns, generation, share, room] = words;
        Self { start_ns, end_ns, stop, expires_ns, generation, bound: Bound { share, room } }
    }

    /// The words that [`Control::from_words`] reads.
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        let Self { start_ns, end_ns, stop, expires_ns, generation, bound } = self;
        [start_ns, end_ns, stop, expires_ns, generation, bound.share, bound.room]
    }

    /// Whether a call that begins at this time may be delayed.
    #[inline(always)]
    pub const fn is_open(&self, at_ns: u64) -> bool {
        self.stop == 0 && at_ns >= self.start_ns && at_ns < self.end_ns && at_ns < self.expires_ns
    }
}

/// Distinguishes a trap that finds the caches cold from a warm one, and says what the cold one costs more;
/// one line for the way in and one for the way back.
///
/// Nearly all of that cost lies outside the BPF program's own clock readings. But the program's own work
/// suffers from the same cold caches. From how much longer that work takes than in a warm trap, a line of few
/// segments gives what the trap costs more around the program. On the way in, this work is the look-ups; on
/// the way back, the [`Telltale`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Coldness {
    /// What the program's look-ups, or its walk over the telltale, take in a warm trap, in ns.
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
    /// How much more the trap costs for each ns of that; [`Coldness::ONE`] is 1.
    pub factor: u32,
}

impl Coldness {
    /// Index into [`COLDNESS`](crate::maps::COLDNESS): the way from the function to the program.
    pub const WAY_IN: u32 = 0;
    /// Index into [`COLDNESS`](crate::maps::COLDNESS): the way from the program back to the function.
    pub const WAY_BACK: u32 = 1;
    /// How many ways there are.
    pub const WAYS: usize = 2;
    /// A factor of 1.
    pub const ONE: u32 = 256;
    /// The caches have some time to cool down. We assume that a cold way in costs at most one part in this
    /// many of that time more than a warm one. Measured: one in 70 to 130 after 80 us of sleep, less after
    /// longer ones. We use the least, because an interrupt in that time makes some calls too short.
    pub const GAP_PARTS: u64 = 128;
    /// A cold way back costs at most one part in this many of the spin more than a warm one. Measured: 300
    /// and more.
    pub const SPIN_PARTS: u64 = 256;
    /// The number of pieces of the line.
    pub const SEGMENTS: usize = 3;

    /// How much more a trap costs than a warm one, in ns, if the look-ups or the walk took `took_ns`.
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

    /// [`more_ns`](Self::more_ns) for the way in, where `gap_ns` have passed since the last delay of the
    /// function on this processor ended.
    ///
    /// Whatever ran meanwhile needed time to take the caches. An interrupt of a few microseconds slows the
    /// look-ups down as a long sleep does, and leaves most of the way to the program warm.
    #[inline(always)]
    pub fn more_after_gap_ns(&self, took_ns: u64, gap_ns: u64) -> u64 {
        if took_ns <= self.warm_ns as u64 {
            return 0;
        }
        self.more_ns(took_ns).min(gap_ns / Self::GAP_PARTS)
    }

    /// [`more_ns`](Self::more_ns) for the way back, after a spin of `spin_ns`.
    #[inline(always)]
    pub fn more_after_spin_ns(&self, took_ns: u64, spin_ns: u64) -> u64 {
        self.more_ns(took_ns).min(spin_ns / Self::SPIN_PARTS)
    }
}

/// Memory that the program walks before a spin, which leaves it in the nearest cache, and again after it: the
/// time of the second walk tells how much of that cache others took during the spin. All zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Telltale {
    /// One word of each cache line is read.
    pub lines: [[u64; Telltale::WORDS]; Telltale::LINES],
}

impl Telltale {
    /// The number of cache lines: few beside a cache of 32 KiB, but a few of them are lost if many are.
    pub const LINES: usize = 16;
    /// Words of a cache line.
    pub const WORDS: usize = 8;
    /// The step from one line to the next of a walk, modulo [`Telltale::LINES`]: prime to it, and not one
    /// that a prefetcher expects.
    pub const STEP: usize = 7;
}

/// A median over the latest values, in constant space: one step towards `took`, of a sixteenth.
///
/// A value that an interrupt made very long moves the median no farther than a value that is a little long.
#[inline(always)]
pub fn running_median(last: u64, took: u64) -> u64 {
    let step = last / 16 + 1;
    match took {
        _ if last == 0 || last.abs_diff(took) <= step => took,
        _ if took > last => last + step,
        _ => last - step,
    }
}

/// What happens to the matching calls of one target, or of one function that has a policy of its own.
///
/// Each policy has two rows. The loader writes the one that does not hold, and then
/// [`Control::generation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Policy {
    /// Delay of a trigger in ns; 0 counts calls and delays none.
    pub delay_ns: u64,
    /// Every `frequency`-th matching call is a trigger; 0 and 1 both mean every call.
    pub frequency: u64,
    /// The signal on which the helper spins, 1 to 64; 0: the program spins.
    pub signal: u32,
    /// Where the helper cannot be sent its signal: 1, the program spins; 0, the call is not delayed, and
    /// counted as missed.
    pub or_spin: u32,
    /// What delivering the signal and returning from its handler take, in ns.
    pub signal_ns: u64,
}

impl Policy {
    /// Rows of a policy.
    pub const ROWS: u32 = 2;
    /// Words of a row.
    pub const WORDS: usize = 4;

    /// Index into [`POLICIES`](crate::maps::POLICIES): the row of a policy that holds in a generation.
    #[inline(always)]
    pub const fn row(policy: u32, generation: u64) -> u32 {
        policy.wrapping_mul(Self::ROWS) + (generation % Self::ROWS as u64) as u32
    }

    /// A row as words, which the loader writes one by one.
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        let who = (self.or_spin as u64) << 32 | self.signal as u64;
        [self.delay_ns, self.frequency, who, self.signal_ns]
    }

    /// Reads what [`Policy::to_words`] wrote.
    pub const fn from_words([delay_ns, frequency, who, signal_ns]: [u64; Self::WORDS]) -> Self {
        Self { delay_ns, frequency, signal: who as u32, or_spin: (who >> 32) as u32, signal_ns }
    }

    /// If the helper spins a delay on a signal, this is the part that the program spins itself, in ns: always
    /// longer than the cost of the site and the signal, and too short to hold anything up. The helper spins
    /// the rest.
    pub const PROGRAMS_SHARE_NS: u64 = 25_000;

    /// The part of a delay that the helper spins.
    #[inline(always)]
    pub const fn helpers_share_ns(delay_ns: u64) -> u64 {
        delay_ns.saturating_sub(Self::PROGRAMS_SHARE_NS)
    }
}

/// Decides about a call whose function has the policy with this number: returns the policy to delay it by, or
/// why it is not delayed. Both the BPF programs and the helper use this function.
///
/// `is_open`: whether the window is open. `in_force` reads the policy. `next` counts a call of the policy,
/// and returns how many there were before; only calls in the window and with a delay count. `has_room`:
/// whether the bound leaves this thread room for a delay of this many ns; if so, the delay takes the room.
///
/// # Errors
/// Why the call is not delayed; `None` if the policy cannot be read.
#[inline(always)]
pub fn decide(
    number: u32,
    is_open: impl FnOnce() -> bool,
    in_force: impl FnOnce() -> Option<Policy>,
    next: impl FnOnce() -> Option<u64>,
    has_room: impl FnOnce(u64) -> bool,
) -> Result<Policy, Option<NotDelayed>> {
    if number == NO_POLICY {
        return Err(Some(NotDelayed::NoPolicy));
    }
    if !is_open() {
        return Err(Some(NotDelayed::WindowClosed));
    }
    let Some(policy) = in_force() else { return Err(None) };
    if policy.delay_ns == 0 {
        return Err(Some(NotDelayed::NoDelay));
    }
    if policy.frequency > 1 {
        let Some(before) = next() else { return Err(None) };
        if before.wrapping_add(1) % policy.frequency != 0 {
            return Err(Some(NotDelayed::Frequency));
        }
    }
    if !has_room(policy.delay_ns) {
        return Err(Some(NotDelayed::Bound));
    }
    Ok(policy)
}

/// A process whose helper has answered that it handles the signals of the session.
///
/// The program sends a signal only if this is the very process, and the kernel has this handler for the
/// signal at that moment. So it sends none after an exec, or to a process that has set its own handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Handshake {
    /// When the process started, in ticks since boot, as in /proc/PID/stat.
    pub started: u64,
    /// Address of the helper's handler.
    pub handler: u64,
}

impl Handshake {
    /// `USER_HZ`, the ticks of a second in /proc/PID/stat on all 64-bit architectures.
    pub const TICKS_PER_SECOND: u64 = 100;
    /// Length of a tick in ns.
    pub const TICK_NS: u64 = 1_000_000_000 / Self::TICKS_PER_SECOND;
}
