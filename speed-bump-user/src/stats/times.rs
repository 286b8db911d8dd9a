//! Own and cumulative times of functions, as reports have them.

use serde::Serialize;
use speed_bump_abi::times::FunctionTimes;

use crate::units::Nanos;

/// The times of one function. Only calls that have ended, or were suspended, are in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimesReport {
    /// Time in the function without that in other timed functions that it called, delays of its own included.
    pub own_ns: Nanos,
    /// Time in the function with all that it called; of a recursion, that of the outermost call alone.
    pub cumulative_ns: Nanos,
    /// Calls while no other one of the function was in progress on the thread.
    pub primitive_calls: u64,
    /// How often a generator or coroutine went on after it had been suspended. `cProfile` counts that as a
    /// call.
    pub resumed: u64,
    /// How often that was while no other call of the function was in progress on the thread.
    pub primitive_resumed: u64,
}

impl TimesReport {
    /// Of a function that was called so often.
    pub fn new(calls: u64, times: FunctionTimes) -> Self {
        Self {
            own_ns: Nanos(times.own_ns),
            cumulative_ns: Nanos(times.cumulative_ns),
            primitive_calls: calls.saturating_sub(times.recursive),
            resumed: times.resumed,
            primitive_resumed: times.resumed.saturating_sub(times.recursive_resumed),
        }
    }
}

/// Calls whose time is in no sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untimed {
    /// Their end was not seen in its turn.
    pub unmatched: u64,
    /// There was no room for them.
    pub without_room: u64,
}

impl Untimed {
    /// What there is to say of it.
    pub fn warnings(self) -> impl Iterator<Item = String> {
        let Self { unmatched, without_room } = self;
        let unmatched = (unmatched > 0).then(|| {
            format!(
                "the times of {unmatched} calls are left out: their end was not seen in its turn, as where \
                 greenlets switch in the middle of calls"
            )
        });
        let without_room = (without_room > 0).then(|| {
            format!(
                "the times of {without_room} calls are left out: they were nested more than 2048 deep, or in \
                 more threads than there is room for; select fewer functions"
            )
        });
        unmatched.into_iter().chain(without_room)
    }
}

impl std::ops::AddAssign for Untimed {
    fn add_assign(&mut self, other: Self) {
        // Processes write them.
        self.unmatched = self.unmatched.saturating_add(other.unmatched);
        self.without_room = self.without_room.saturating_add(other.without_room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primitive_calls_are_those_that_are_not_recursive() {
        let times =
            FunctionTimes { recursive: 3, resumed: 5, recursive_resumed: 1, own_ns: 7, cumulative_ns: 9 };
        let report = TimesReport::new(10, times);
        assert_eq!((report.primitive_calls, report.resumed, report.primitive_resumed), (7, 5, 4));
        assert_eq!(TimesReport::new(2, times).primitive_calls, 0, "what a process writes may be nonsense");
    }

    #[test]
    fn what_is_not_timed_is_told_of_each_kind() {
        assert_eq!(Untimed::default().warnings().count(), 0);
        let mut untimed = Untimed { unmatched: 3, without_room: u64::MAX };
        untimed += untimed;
        let warnings: Vec<_> = untimed.warnings().collect();
        assert!(warnings.len() == 2 && warnings[0].contains("of 6 calls"), "{warnings:?}");
    }
}
