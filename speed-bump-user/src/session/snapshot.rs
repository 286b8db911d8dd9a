//! What a session has counted at one moment.

use std::{collections::HashMap, sync::Arc};

use speed_bump_abi::FunctionStats;

use crate::{probe::plan::SelectedFunction, units::Nanos};

/// Counters by function, read while calls went on: each counter is exact, and a call that came meanwhile may
/// be in one function's and not yet in another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When reading began (`CLOCK_MONOTONIC`): all calls that had returned by then are in.
    pub at: Nanos,
    pub(super) counts: HashMap<Arc<SelectedFunction>, FunctionStats>,
}

impl Snapshot {
    /// The functions that are known, and what was counted of each, in no order.
    pub fn functions(&self) -> impl Iterator<Item = (&SelectedFunction, &FunctionStats)> {
        self.counts.iter().map(|(function, stats)| (&**function, stats))
    }

    /// What was counted of a function; zeros for one that is not known.
    pub fn of(&self, function: &SelectedFunction) -> FunctionStats {
        self.counts.get(function).copied().unwrap_or_default()
    }

    /// What was counted from an earlier snapshot of the same session to this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let since = |(function, stats): (&Arc<SelectedFunction>, &FunctionStats)| {
            (Arc::clone(function), stats.since(&earlier.of(function)))
        };
        Self { at: self.at, counts: self.counts.iter().map(since).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::TargetIndex;

    fn function(name: &str) -> SelectedFunction {
        SelectedFunction { target: TargetIndex(0), name: name.into(), file: "/a".into(), line: None }
    }

    fn snapshot(at: u64, calls: &[(&str, u64)]) -> Snapshot {
        let stats = |calls| FunctionStats { calls, ..FunctionStats::default() };
        let counts = calls.iter().map(|(name, calls)| (Arc::new(function(name)), stats(*calls)));
        Snapshot { at: Nanos(at), counts: counts.collect() }
    }

    #[test]
    fn what_came_between_two_snapshots_is_their_difference() {
        let earlier = snapshot(5, &[("f", 3)]);
        let later = snapshot(9, &[("f", 10), ("g", 4)]);
        assert_eq!(later.since(&earlier), snapshot(9, &[("f", 7), ("g", 4)]));
        assert_eq!(later.of(&function("g")).calls, 4);
        assert_eq!(later.of(&function("h")), FunctionStats::default());
        assert_eq!(later.functions().map(|(_, stats)| stats.calls).sum::<u64>(), 14);
    }
}
