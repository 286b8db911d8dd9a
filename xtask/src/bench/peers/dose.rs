//! What each peer is asked to do to calls, and how many of them are measured.

/// Slices of a dose in a round.
pub(super) const PASSES: usize = 4;
/// Calls before each measurement, which are not counted.
pub(super) const WARM_UP: usize = 300;
/// Calls that are measured where none is delayed.
pub(super) const UNDELAYED_CALLS: usize = 3_000;
/// Calls after a sleep that are measured where calls match, and as many of another function.
pub(super) const SLEPT_CALLS: usize = 16;
/// Length of that sleep.
pub(super) const SLEEP_US: u64 = 5_000;
/// So many calls are never reached: none is delayed, and each is counted.
pub(super) const SELDOM: u64 = 1_000_000;

/// What becomes of a matching call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dose {
    /// The window is not open yet. Before all others.
    Closed,
    /// Every [`SELDOM`]th would be delayed by 1 ms.
    Seldom,
    /// Delayed by so many ns.
    Each(u64),
}

impl Dose {
    /// Those of an open window, in their order.
    pub(super) const OPEN: [Self; 6] = [
        Self::Seldom,
        Self::Each(0),
        Self::Each(1_000),
        Self::Each(10_000),
        Self::Each(100_000),
        Self::Each(1_000_000),
    ];

    /// How many calls are measured: some tens of milliseconds at most.
    pub(super) fn calls(self) -> usize {
        match self {
            Self::Closed | Self::Seldom | Self::Each(..1_000) => UNDELAYED_CALLS,
            Self::Each(..50_000) => 1_000,
            Self::Each(..500_000) => 300,
            Self::Each(_) => 50,
        }
    }

    /// How many are measured after a sleep.
    pub(super) fn slept_calls(self) -> usize {
        if matches!(self, Self::Each(_)) { SLEPT_CALLS } else { 0 }
    }

    /// Delay and frequency of a peer whose window is open, or that has none.
    pub(super) fn delay_and_frequency(self) -> (u64, u64) {
        match self {
            Self::Closed => (1_000_000, 1),
            Self::Seldom => (1_000_000, SELDOM),
            Self::Each(delay_ns) => (delay_ns, 1),
        }
    }
}
