//! The doses that peers get, and how many calls are measured.

/// Slices per dose and round.
pub(super) const PASSES: usize = 4;
/// Uncounted calls before each measurement.
pub(super) const WARM_UP: usize = 300;
/// Measured calls if none is delayed.
pub(super) const UNDELAYED_CALLS: usize = 3_000;
/// Measured calls that each come after a sleep: this many matching ones, and this many of another function.
pub(super) const SLEPT_CALLS: usize = 16;
/// Length of that sleep.
pub(super) const SLEEP_US: u64 = 5_000;
/// A number of calls that is never reached: none is delayed, and each is counted.
pub(super) const SELDOM: u64 = 1_000_000;

/// What happens to a matching call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dose {
    /// The window is not open yet. This comes first.
    Closed,
    /// Every [`SELDOM`]th would be delayed by 1 ms.
    Seldom,
    /// Delayed by this many ns.
    Each(u64),
}

impl Dose {
    /// The doses of an open window, in order.
    pub(super) const OPEN: [Self; 6] = [
        Self::Seldom,
        Self::Each(0),
        Self::Each(1_000),
        Self::Each(10_000),
        Self::Each(100_000),
        Self::Each(1_000_000),
    ];

    /// How many calls are measured: for some tens of milliseconds at most.
    pub(super) fn calls(self) -> usize {
        match self {
            Self::Closed | Self::Seldom | Self::Each(..1_000) => UNDELAYED_CALLS,
            Self::Each(..50_000) => 1_000,
            Self::Each(..500_000) => 300,
            Self::Each(_) => 50,
        }
    }

    /// How many matching calls are measured after a sleep.
    pub(super) fn slept_calls(self) -> usize {
        if matches!(self, Self::Each(_)) { SLEPT_CALLS } else { 0 }
    }

    /// Delay and frequency for a peer whose window is open, or that has none.
    pub(super) fn delay_and_frequency(self) -> (u64, u64) {
        match self {
            Self::Closed => (1_000_000, 1),
            Self::Seldom => (1_000_000, SELDOM),
            Self::Each(delay_ns) => (delay_ns, 1),
        }
    }
}
