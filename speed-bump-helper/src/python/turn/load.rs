//! Whether a thread of the process computes, by the kernel's clocks of processor time.

use crate::sys::{self, CpuClock};

/// How long we watch the process before we decide.
const WINDOW_NS: u64 = 20_000_000;
/// A thread that uses this fraction of the time computes: the machine may have much other work.
const PART: u64 = 10;
/// The number of times in a row that the process must compute, without a turn, until we conclude that a
/// thread other than Python's main thread computes.
const WINDOWS: u32 = 50;

/// The clocks at one moment.
#[derive(Clone, Copy)]
struct Times {
    now: u64,
    process: u64,
    /// The first thread's.
    main: u64,
    /// The calling thread's.
    own: u64,
}

/// The load since the last check.
pub(super) struct Load {
    before: Option<Times>,
    /// The number of periods in a row in which the process computed.
    busy: u32,
}

impl Load {
    pub(super) fn begin() -> Self {
        Self { before: Times::read(), busy: 0 }
    }

    /// Whether the process computed in the last period.
    pub(super) fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// Whether a thread other than the first computes, or some thread has computed for long. True if the
    /// clocks cannot be read.
    pub(super) fn others_compute(&mut self) -> bool {
        let (Some(before), Some(now)) = (self.before, Times::read()) else { return true };
        let window = now.now.saturating_sub(before.now);
        if window < WINDOW_NS {
            return false;
        }
        self.before = Some(now);
        let of = |time: fn(&Times) -> u64| time(&now).saturating_sub(time(&before));
        let all = of(|times| times.process).saturating_sub(of(|times| times.own));
        let others = all.saturating_sub(of(|times| times.main));
        self.busy = if all >= window / PART { self.busy.saturating_add(1) } else { 0 };
        others >= window / PART || self.busy >= WINDOWS
    }
}

impl Times {
    fn read() -> Option<Self> {
        Some(Self {
            now: sys::clock_ns(CpuClock::Monotonic)?,
            process: sys::clock_ns(CpuClock::Process)?,
            main: sys::clock_ns(CpuClock::FirstThread)?,
            own: sys::clock_ns(CpuClock::Thread)?,
        })
    }
}
