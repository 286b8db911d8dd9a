//! Whether a thread of the process computes, by the kernel's clocks of processor time.

use crate::sys::{self, CpuClock};

/// How long the process is watched until it is judged.
const WINDOW_NS: u64 = 20_000_000;
/// From this part of the time on a thread computes: a machine may have much else to do.
const PART: u64 = 10;
/// So often in a row the process computes, and offers no turn, until that is taken for a thread that is not
/// Python's main thread.
const WINDOWS: u32 = 50;

/// What was seen at one moment.
#[derive(Clone, Copy)]
struct Times {
    now: u64,
    process: u64,
    /// Of the first thread.
    main: u64,
    /// Of the calling thread.
    own: u64,
}

/// The load since it was last looked at.
pub(super) struct Load {
    before: Option<Times>,
    /// Windows in a row in which the process computed.
    busy: u32,
}

impl Load {
    pub(super) fn begin() -> Self {
        Self { before: Times::read(), busy: 0 }
    }

    /// Whether the process computed when it was last looked at.
    pub(super) fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// Whether another thread computes than the first, or some thread has for long. Where the clocks cannot
    /// be read, that is taken for so.
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
