//! What the BPF programs log of their decisions. Only the object that was built to log does so.

/// Why a call was not delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NotDelayed {
    /// No target of this session selects the function any more.
    NoPolicy = 0,
    /// The session's window is closed, or the loader has not renewed the delays.
    WindowClosed = 1,
    /// `frequency` leaves this call out.
    Frequency = 2,
    /// The delay is 0.
    NoDelay = 3,
    /// A signal would have no helper to go to.
    NoHelper = 4,
    /// The thread blocks the helper's signal.
    SignalBlocked = 5,
    /// The signal has a handler that is not the helper's.
    OtherHandler = 6,
    /// The process named a function by a number that is not one of its own.
    NotItsFunction = 7,
    /// The thread has been delayed for as much of its time as the session's bound allows.
    Bound = 8,
}

impl NotDelayed {
    /// How many there are.
    pub const COUNT: u32 = 9;
}

/// How often something is logged on one CPU, as the kernel's `ratelimit_state` does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RateLimit {
    /// When the interval began, in ns of `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// Lines of this interval.
    pub printed: u64,
    /// Lines that were left out, since the session began.
    pub missed: u64,
}

impl RateLimit {
    /// Lines of an interval at most.
    pub const BURST: u64 = 5;
    /// An interval's length.
    pub const INTERVAL_NS: u64 = 1_000_000_000;

    /// Whether a line may be logged at this time. Programs that preempt one another may log one more.
    #[inline(always)]
    pub const fn allows(&mut self, now_ns: u64) -> bool {
        if now_ns.wrapping_sub(self.begin_ns) >= Self::INTERVAL_NS {
            self.begin_ns = now_ns;
            self.printed = 0;
        }
        if self.printed >= Self::BURST {
            self.missed += 1;
            return false;
        }
        self.printed += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_logged_and_then_nothing_until_the_next_interval() {
        let mut limit = RateLimit::default();
        let begin = 5 * RateLimit::INTERVAL_NS;
        let allowed = (0..20).filter(|at| limit.allows(begin + at)).count() as u64;
        assert_eq!((allowed, limit.missed), (RateLimit::BURST, 20 - RateLimit::BURST));
        assert!(limit.allows(begin + RateLimit::INTERVAL_NS));
        assert_eq!(limit.printed, 1);
    }
}
