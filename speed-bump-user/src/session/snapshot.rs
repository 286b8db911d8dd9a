//! What a session has counted at one moment.

use std::sync::Arc;

use speed_bump_abi::FunctionStats;

use super::known::{FunctionId, KnownFunctions};
use crate::{probe::plan::SelectedFunction, units::Nanos};

/// Counters by function, read while calls went on: each counter is exact, and a call that came meanwhile may
/// be in one function's and not yet in another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When reading began (`CLOCK_MONOTONIC`): all calls that had returned by then are in.
    pub at: Nanos,
    /// The functions that were known then.
    pub known: Arc<KnownFunctions>,
    /// By [`FunctionId`].
    pub(super) counts: Vec<FunctionStats>,
}

impl Snapshot {
    /// The functions that are known, and what was counted of each, by number.
    pub fn functions(&self) -> impl Iterator<Item = (&SelectedFunction, &FunctionStats)> {
        self.known.iter().map(|(_, function)| function).zip(&self.counts)
    }

    /// What was counted of a function; zeros for one that is not known.
    pub fn of(&self, function: &SelectedFunction) -> FunctionStats {
        self.known.id(function).map(|id| self.of_id(id)).unwrap_or_default()
    }

    /// What was counted of the function with this number; zeros for one that is not known.
    pub fn of_id(&self, id: FunctionId) -> FunctionStats {
        self.counts.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// What was counted from an earlier snapshot of the same session to this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        // What became known meanwhile had counted nothing.
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(FunctionStats::default()));
        let counts = self.counts.iter().zip(before).map(|(stats, before)| stats.since(&before));
        Self { at: self.at, known: Arc::clone(&self.known), counts: counts.collect() }
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
        let mut known = KnownFunctions::default();
        for (name, _) in calls {
            known.enter(function(name));
        }
        let stats = |calls| FunctionStats { calls, ..FunctionStats::default() };
        let counts = calls.iter().map(|(_, calls)| stats(*calls)).collect();
        Snapshot { at: Nanos(at), known: known.into(), counts }
    }

    #[test]
    fn what_came_between_two_snapshots_is_their_difference() {
        let earlier = snapshot(5, &[("f", 3)]);
        let later = snapshot(9, &[("f", 10), ("g", 4)]);
        assert_eq!(later.since(&earlier), snapshot(9, &[("f", 7), ("g", 4)]));
        assert_eq!(later.of(&function("g")).calls, 4);
        assert_eq!(later.of_id(FunctionId(1)).calls, 4);
        assert_eq!(later.of(&function("h")), FunctionStats::default());
        assert_eq!(later.of_id(FunctionId(2)), FunctionStats::default());
        assert_eq!(later.functions().map(|(_, stats)| stats.calls).sum::<u64>(), 14);
    }
}
